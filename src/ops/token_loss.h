#pragma once
#include <ATen/ATen.h>

namespace mhar::ops {

/// What one call of token_loss gives.
struct TokenLoss {
  at::Tensor objective;  ///< scalar to differentiate: weight x (sum of losses + z_loss x sum of lse^2)
  at::Tensor sum;        ///< sum of -log p(target) over the counted targets, fp32 (fp64 for fp64 models), no gradient
};

/// Logits per chunk are bounded to this many elements.
inline constexpr int64_t kLogitElements = int64_t{1} << 28;

struct TokenLossOptions {
  double weight = 1.0;         ///< 1 / (targets counted in the whole batch)
  double z_loss = 0.0;         ///< factor of lse^2 in the objective
  bool differentiable = true;  ///< compute the gradients in the same pass
  int64_t logit_elements = kLogitElements;
};

/// Output head and cross entropy over chunks of tokens, so that the logits of all tokens never exist at once.
/// hidden [P, D], head [V, D], targets [P] int64 with negative ones not counted. Logits come out of the GEMM in the
/// storage type; everything after them is in the compute type. Throws std::invalid_argument when shapes differ.
TokenLoss token_loss(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                     const TokenLossOptions& options);

}  // namespace mhar::ops
