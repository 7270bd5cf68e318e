#pragma once
#include <ATen/ATen.h>

#include <vector>

namespace mhar::ops {

// The depth read of one site, composed of tensor operations: the meaning in tensor form, and the fallback of faster
// engines. Letters: P tokens, D width, H routing heads, K = D / H, N sources.

/// A source as every later site reads it. The value is held in the compute type, so that the gradients of all its sites
/// are summed there and rounded to the storage type once.
struct DepthSource {
  at::Tensor value;        ///< [P, D], part of the autograd graph
  at::Tensor inverse_rms;  ///< rho, [P, 1], without gradient
};

/// Takes a source over from storage: [P, D] of any floating type.
DepthSource depth_source(const at::Tensor& stored, double eps);

/// w = q * g in the compute type, [D]; query [1, D] or [D], gain [D]. Never rounded to the storage type.
at::Tensor depth_key(const at::Tensor& query, const at::Tensor& gain);

/// w laid out as a [D, H] matrix that is zero outside each head's own channels: per-head products become one GEMM that
/// reads a source once.
at::Tensor head_matrix(const at::Tensor& key, int64_t heads);

/// One read without autograd, for those who join it to autograd themselves. Values [P, D] of the storage or the compute
/// type, rho [P, 1] each and key [D] in the compute type; so are the results.
struct DepthMix {
  at::Tensor mix;              ///< o [P, D]
  at::Tensor logits, weights;  ///< [N, P, H]
};
DepthMix depth_mix(at::TensorList values, const std::vector<at::Tensor>& rho, const at::Tensor& key, int64_t heads);

/// Its gradients for dO [P, D]: of the values (in their type) and of the key. `read.mix` is not used.
struct DepthMixGradients {
  std::vector<at::Tensor> values;
  at::Tensor key;
};
DepthMixGradients depth_mix_backward(at::TensorList values, const std::vector<at::Tensor>& rho, const at::Tensor& key,
                                     int64_t heads, const DepthMix& read, const at::Tensor& dmix);

/// The mix o [P, D] (compute type) of N >= 1 sources with key w [D] and H heads (Eq. 1 to 4; gradients Eq. 5 to
/// 8). One source: o is that source's value and w gets no gradient.
/// Throws std::invalid_argument when H does not divide D or shapes differ.
at::Tensor depth_read(const std::vector<DepthSource>& sources, const at::Tensor& key, int64_t heads);

/// The softmax weights p [N, P, H] of the same read, without gradient.
at::Tensor depth_weights(const std::vector<DepthSource>& sources, const at::Tensor& key, int64_t heads);

}  // namespace mhar::ops
