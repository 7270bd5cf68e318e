#pragma once
#include <ATen/ATen.h>

namespace mhar::ops {

/// What one call of token_loss gives.
struct TokenLoss {
  at::Tensor objective;  ///< scalar to differentiate: weight x (sum of losses + z_loss x sum of lse^2)
  at::Tensor sum;        ///< sum of -log p(target) over the counted targets, fp32 (fp64 for fp64 models), no gradient
};

/// What the logits of one chunk may take, with the sum of the head's gradient where there are several chunks. 4096
/// tokens of 151,936 classes in bf16 are one chunk.
inline constexpr int64_t kLogitBytes = 1'350'000'000;

struct TokenLossOptions {
  double weight = 1.0;         ///< 1 / (targets counted in the whole batch)
  double z_loss = 0.0;         ///< factor of lse^2 in the objective
  bool differentiable = true;  ///< compute the gradients in the same pass
  /// The caller's word that backward starts at the objective, with a gradient of 1: the gradients that were computed in
  /// the forward pass are then handed on as they are.
  bool starts_backward = false;
  int64_t logit_bytes = kLogitBytes;
  at::Tensor scale = {};  ///< one fp32 number on the device, one more factor of the weight; undefined: none
  /// With starts_backward: the place (ops/place.h) of the head's gradient, [V, D] like the head; undefined: autograd
  /// takes it.
  /// As in ops/linear.h it becomes head.grad(); where that is defined already the gradient goes through autograd.
  at::Tensor head_place = {};
};

/// Output head and cross entropy over chunks of tokens, forward and backward in one go, so that the logits of all
/// tokens never exist at once: their gradient takes their place (Eq. 21 to 23 of docs/method.md). hidden [P, D], head
/// [V, D], targets [P] int64 with negative ones not counted; one of V or above makes the loss NaN, or an error in fp64.
/// Logits come out of the GEMM in the storage type; everything after them is in the compute type, and so is the sum of
/// the head's gradient over chunks. Throws std::invalid_argument when shapes differ.
TokenLoss token_loss(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                     const TokenLossOptions& options);

}  // namespace mhar::ops
