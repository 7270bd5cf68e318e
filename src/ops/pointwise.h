#pragma once
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "kernels/element.h"
#include "ops/depth_engine.h"

namespace mhar::ops {

// How operations over the pointwise kernels (norm, qk_rope, swiglu) find theirs.

/// The kernels that serve `sizes` on a device, or null: the composed form then does the work, and says so once where
/// that is slower than it could be. fp64 is not served on purpose: the composed form is the check on the kernels.
template <typename Kernels, typename Sizes>
const Kernels* pointwise_kernels(const char* operation, at::Device device, const Kernels& cpu, const Kernels& cuda,
                                 const Sizes& sizes) {
  if (!device.is_cpu() && !device.is_cuda()) return nullptr;
  const Kernels& candidate = device.is_cpu() ? cpu : cuda;
  const char* reason = candidate.refuses(sizes);
  if (!reason) return &candidate;
  if (device.is_cuda() && sizes.type != kernels::Element::f64) {
    TORCH_WARN_ONCE("mhar: ", operation, " is composed of tensor operations: the CUDA kernels take no ", reason);
  }
  return nullptr;
}

/// fp64 for whatever kernels do not know.
inline kernels::Element element_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::Element::f32;
    case at::kBFloat16:
      return kernels::Element::bf16;
    case at::kHalf:
      return kernels::Element::f16;
    default:
      return kernels::Element::f64;
  }
}

/// Kernels' gradients have none of their own.
inline void require_no_second_derivative(const char* operation) {
  if (!at::GradMode::is_enabled()) return;
  throw std::logic_error(describe({operation, "", "one backward pass", "one that is to be differentiated",
                                   "use fp64, which is composed of differentiable operations"}));
}

}  // namespace mhar::ops
