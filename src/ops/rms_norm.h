#pragma once
#include <ATen/ATen.h>

namespace mhar::ops {

/// 1 / sqrt(mean over the last dimension of x^2 + eps), [..., 1] in the compute type; no gradient.
at::Tensor inverse_rms(const at::Tensor& x, double eps);

/// weight x storage-type(x / rms(x)) over the last dimension (Eq. 9, gradient Eq. 10): statistics in the compute type,
/// the normalised value rounded to x's type before the weight is applied, as Hugging Face does.
/// x [..., D], weight [D] of the same type. Throws std::invalid_argument when the widths differ.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// dx and dweight of rms_norm for dy, both in x's type, as Eq. 10 says; for those who join it to autograd themselves.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& x, const at::Tensor& weight, double eps,
                                                     const at::Tensor& dy);

}  // namespace mhar::ops
