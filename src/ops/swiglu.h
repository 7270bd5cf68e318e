#pragma once
#include <ATen/ATen.h>

#include "ops/linear.h"

namespace mhar::ops {

/// The gate of the MLP and its output projection, Eq. 19: W_down (silu(a) * b) for gate_up [P, 2F], whose rows hold a
/// and then b, and `down` [D, F] = W_down; [P, D]. silu(a) is rounded to the storage type before it meets b, as Hugging
/// Face's models do. Backward (Eq. 20) makes the inner values once more on its way, so only gate_up is kept. Weight
/// gradient and `slot` are those of linear(). fp32 and bf16 run on the kernels, the rest is composed. Throws
/// std::invalid_argument for other shapes.
at::Tensor swiglu_linear(const at::Tensor& gate_up, const LinearWeight& down, const at::Tensor& slot = {});

}  // namespace mhar::ops
