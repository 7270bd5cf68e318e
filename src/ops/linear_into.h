#pragma once
#include <ATen/ATen.h>

namespace mhar::ops {

/// x [P, in] times weight [out, in], transposed, written into `slot` [P, out], which is returned with its gradient
/// (that of x and weight). As at::linear without a bias otherwise; at::mm_out has no gradient. `slot` must not require
/// one.
at::Tensor linear_into(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& slot);

}  // namespace mhar::ops
