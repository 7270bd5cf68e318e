#pragma once
#include <ATen/ATen.h>

namespace mhar::ops {

/// The type statistics, softmax and sums are computed in: fp64 for fp64 storage, fp32 for everything else.
inline at::ScalarType compute_type(at::ScalarType storage) { return storage == at::kDouble ? at::kDouble : at::kFloat; }
inline at::ScalarType compute_type(const at::Tensor& tensor) { return compute_type(tensor.scalar_type()); }

}  // namespace mhar::ops
