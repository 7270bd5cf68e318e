#pragma once
#include <ATen/ATen.h>

namespace mhar::ops {

/// What one call of add_rms_norm gives, both [P, D].
struct NormedSum {
  at::Tensor sum;     ///< stream + output, rounded once
  at::Tensor normed;  ///< RMSNorm of the sum, Eq. 9
};

/// One step of a residual stream, Eq. 32: adds a sublayer's output to the stream and norms the sum for the next
/// sublayer, each value read once and written once; backward likewise, where the gradients of both results are added
/// before the one rounding. `stream` and `output` [P, D], `weight` [D], all of one type and device. fp32 and bf16 run
/// on the kernels, the rest is composed. Throws std::invalid_argument for other shapes.
NormedSum add_rms_norm(const at::Tensor& stream, const at::Tensor& output, const at::Tensor& weight, double eps);

/// rms_norm (ops/rms_norm.h) of rows x [P, D] on the same kernels.
at::Tensor rms_norm_rows(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace mhar::ops
