#include "train/tensor_io.h"

#include "base/hash.h"

namespace mhar {
namespace {

std::span<const std::byte> bytes_of(const at::Tensor& contiguous) {
  return {static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

at::Tensor on_cpu(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU).contiguous(); }

}  // namespace

checkpoint::Type file_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return checkpoint::Type::f64;
    case at::kFloat:
      return checkpoint::Type::f32;
    case at::kHalf:
      return checkpoint::Type::f16;
    case at::kBFloat16:
      return checkpoint::Type::bf16;
    case at::kLong:
      return checkpoint::Type::i64;
    case at::kInt:
      return checkpoint::Type::i32;
    case at::kByte:
      return checkpoint::Type::u8;
    default:
      throw std::invalid_argument(std::string("file_type: no safetensors type for ") + c10::toString(type));
  }
}

at::ScalarType tensor_type(checkpoint::Type type) {
  switch (type) {
    case checkpoint::Type::f64:
      return at::kDouble;
    case checkpoint::Type::f32:
      return at::kFloat;
    case checkpoint::Type::f16:
      return at::kHalf;
    case checkpoint::Type::bf16:
      return at::kBFloat16;
    case checkpoint::Type::i64:
      return at::kLong;
    case checkpoint::Type::i32:
      return at::kInt;
    case checkpoint::Type::u8:
      return at::kByte;
  }
  throw std::invalid_argument("tensor_type: unknown safetensors type");
}

void TensorWriter::add(const std::string& name, const at::Tensor& tensor) {
  tensors_.emplace_back(name, on_cpu(tensor));
}

void TensorWriter::write(const fs::path& path, const std::map<std::string, std::string>& metadata) const {
  std::vector<checkpoint::View> views;
  for (const auto& [name, tensor] : tensors_) {
    views.push_back({name, file_type(tensor.scalar_type()), tensor.sizes().vec(), bytes_of(tensor)});
  }
  checkpoint::write_safetensors(path, views, metadata);
}

at::Tensor mapped_tensor(const checkpoint::Entry& entry, std::span<const std::byte> bytes) {
  return at::from_blob(const_cast<std::byte*>(bytes.data()), entry.shape,
                       at::TensorOptions().dtype(tensor_type(entry.type)));
}

std::string bits_hash(const at::Tensor& tensor) { return hash_hex(bytes_of(on_cpu(tensor))); }

}  // namespace mhar
