#pragma once
#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/parameters.h"

namespace mhar {

checkpoint::Type file_type(at::ScalarType type);
at::ScalarType tensor_type(checkpoint::Type type);

/// Named tensors on their way into a file: copies on the CPU, kept until write().
class TensorWriter {
 public:
  void add(const std::string& name, const at::Tensor& tensor);
  void write(const fs::path& path, const std::map<std::string, std::string>& metadata) const;

 private:
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

/// A tensor over the bytes of a mapped file (CPU, read only; copy before writing). Valid while the file is.
at::Tensor mapped_tensor(const checkpoint::Entry& entry, std::span<const std::byte> bytes);

/// XXH3-128 of a tensor's bits, to see whether it ever moved.
std::string bits_hash(const at::Tensor& tensor);

}  // namespace mhar
