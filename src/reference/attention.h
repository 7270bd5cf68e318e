#pragma once
// Causal grouped-query attention and its gradients: Eq. 15 to 18 of docs/method.md.
// Letters: B sequences, T positions, n query heads, G key/value heads, K channels of a head (here only; routing has its
// own).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace mhar::reference {

struct AttentionSizes {
  int64_t batch, length, heads, kv_heads, head_dim;  ///< kv_heads divides heads
  int64_t query(int64_t b, int64_t t, int64_t head) const { return ((b * length + t) * heads + head) * head_dim; }
  int64_t key(int64_t b, int64_t t, int64_t head) const {
    return ((b * length + t) * kv_heads + head * kv_heads / heads) * head_dim;
  }
  int64_t weight(int64_t b, int64_t head, int64_t t, int64_t u) const {
    return ((b * heads + head) * length + t) * length + u;
  }
};

template <typename T>
struct Attention {
  std::vector<T> weights;  ///< [B, n, T, T]; 0 above the diagonal
  std::vector<T> output;   ///< [B, T, n, K]
};

/// q: [B, T, n, K]; k and v: [B, T, G, K].
template <typename T>
Attention<T> attention(const AttentionSizes& sizes, std::span<const T> q, std::span<const T> k, std::span<const T> v) {
  const int64_t K = sizes.head_dim;
  const T scale = T(1) / std::sqrt(T(K));
  Attention<T> result{std::vector<T>(sizes.batch * sizes.heads * sizes.length * sizes.length),
                      std::vector<T>(q.size())};
  for (int64_t b = 0; b < sizes.batch; ++b) {
    for (int64_t head = 0; head < sizes.heads; ++head) {
      for (int64_t t = 0; t < sizes.length; ++t) {
        T* weights = &result.weights[sizes.weight(b, head, t, 0)];
        for (int64_t u = 0; u <= t; ++u) {
          T score = 0;
          for (int64_t c = 0; c < K; ++c) score += q[sizes.query(b, t, head) + c] * k[sizes.key(b, u, head) + c];
          weights[u] = scale * score;  // Eq. 15
        }
        const T largest = *std::max_element(weights, weights + t + 1);
        T total = 0;
        for (int64_t u = 0; u <= t; ++u) total += weights[u] = std::exp(weights[u] - largest);
        for (int64_t u = 0; u <= t; ++u) {
          weights[u] /= total;  // Eq. 16
          for (int64_t c = 0; c < K; ++c) {
            result.output[sizes.query(b, t, head) + c] += weights[u] * v[sizes.key(b, u, head) + c];  // Eq. 17
          }
        }
      }
    }
  }
  return result;
}

template <typename T>
struct AttentionGradients {
  std::vector<T> q, k, v;  ///< shaped as the inputs
};

/// Eq. 18. output_gradient: [B, T, n, K].
template <typename T>
AttentionGradients<T> attention_backward(const AttentionSizes& sizes, std::span<const T> q, std::span<const T> k,
                                         std::span<const T> v, const Attention<T>& forward,
                                         std::span<const T> output_gradient) {
  const int64_t K = sizes.head_dim;
  const T scale = T(1) / std::sqrt(T(K));
  AttentionGradients<T> result{std::vector<T>(q.size()), std::vector<T>(k.size()), std::vector<T>(v.size())};
  for (int64_t b = 0; b < sizes.batch; ++b) {
    for (int64_t head = 0; head < sizes.heads; ++head) {
      for (int64_t t = 0; t < sizes.length; ++t) {
        const int64_t at_query = sizes.query(b, t, head);
        T delta = 0;
        for (int64_t c = 0; c < K; ++c) delta += output_gradient[at_query + c] * forward.output[at_query + c];
        for (int64_t u = 0; u <= t; ++u) {
          const int64_t at_key = sizes.key(b, u, head);
          const T weight = forward.weights[sizes.weight(b, head, t, u)];
          T product = 0;
          for (int64_t c = 0; c < K; ++c) product += output_gradient[at_query + c] * v[at_key + c];
          const T score_gradient = weight * (product - delta) * scale;
          for (int64_t c = 0; c < K; ++c) {
            result.v[at_key + c] += weight * output_gradient[at_query + c];
            result.q[at_query + c] += score_gradient * k[at_key + c];
            result.k[at_key + c] += score_gradient * q[at_query + c];
          }
        }
      }
    }
  }
  return result;
}

}  // namespace mhar::reference
