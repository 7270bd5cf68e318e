#pragma once
#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "base/parameter.h"

namespace mhar {

/// The gradient of the parameters at [begin, begin + number of values) of the flat buffer.
struct GradientPiece {
  int64_t begin = 0;
  at::Tensor values;
};

/// All parameters of a model in one flat buffer, in a fixed order, each starting on a 64-byte boundary (padding is zero
/// and never stored). The optimizer works on the flat buffers; the model sees named views.
///
/// Gradients lie in pieces, one for each large block of the model, laid out like that part of the buffer. On a GPU a
/// piece has memory only between the first gradient that is written to it and release_gradient(): the backward pass
/// comes to a block when it is done with the activations of the blocks behind it, and takes that memory.
class Parameters {
 public:
  Parameters(std::vector<ParameterSpec> specs, at::ScalarType type, at::Device device);
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  /// The named parameter, a leaf of the autograd graph. Throws std::out_of_range.
  at::Tensor get(const std::string& name) const { return views_.at(index_.at(name)); }
  const at::Tensor& view(size_t index) const { return views_[index]; }
  int64_t offset(size_t index) const { return offsets_[index]; }
  int64_t count() const { return count_; }  ///< elements, padding left out

  const at::Tensor& flat() const { return flat_; }
  at::ScalarType type() const { return flat_.scalar_type(); }
  at::Device device() const { return flat_.device(); }

  /// The part of a flat buffer laid out like flat() that belongs to parameter `index`, in its shape.
  at::Tensor part(const at::Tensor& buffer, size_t index) const;

  /// The whole gradient, zeros where none was written; afterwards every parameter's .grad is a view of it, so backward
  /// adds into it.
  const std::vector<GradientPiece>& gradient();

  /// As filling it with zeros, without doing it: no parameter has a .grad until a backward pass gives it one or an
  /// operation writes it to its place. gradient() then gathers those and fills the rest with zeros.
  void clear_gradient();
  /// The same, and the memory goes back until it is needed again.
  void release_gradient();

  /// Where operations that write a parameter's gradient themselves put it (ops/linear.h, ops/place.h), in the
  /// parameter's shape; undefined before the first call of gradient() or clear_gradient().
  at::Tensor gradient_place(const std::string& name) const;

  /// Fills in starting values, tensors in their order from one seeded generator: the same values on every device.
  void initialise(uint64_t seed);

 private:
  void make_pieces();

  std::vector<ParameterSpec> specs_;
  std::map<std::string, size_t> index_;
  std::vector<int64_t> offsets_;
  std::vector<at::Tensor> views_;
  std::vector<GradientPiece> pieces_;  // none before the first gradient
  std::vector<at::Tensor> places_;     // of each parameter in its piece
  std::vector<at::Tensor> gaps_;       // between them
  at::Tensor flat_;
  int64_t count_ = 0;
};

}  // namespace mhar
