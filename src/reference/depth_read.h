#pragma once
// The depth read of one site and its gradients: Eq. 1 to 8 of docs/method.md in plain loops.
// Letters: N sources, P tokens, D width, H routing heads, K = D / H channels of a head.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace mhar::reference {

struct DepthReadSizes {
  int64_t sources, tokens, width, heads;  ///< N >= 1, P >= 0, D, H; H divides D
  double eps = 1e-6;
  int64_t channels() const { return width / heads; }
};

template <typename T>
struct DepthRead {
  std::vector<T> rho;      ///< [N, P]
  std::vector<T> logits;   ///< [N, P, H]
  std::vector<T> weights;  ///< [N, P, H], sum 1 over N
  std::vector<T> output;   ///< [P, D]
};

/// sources: N vectors [P, D]; query and gain: [D], read as [H, K].
template <typename T>
DepthRead<T> depth_read(const DepthReadSizes& sizes, const std::vector<std::vector<T>>& sources,
                        std::span<const T> query, std::span<const T> gain) {
  const auto [N, P, D, H, eps] = sizes;
  const int64_t K = sizes.channels();
  DepthRead<T> read{std::vector<T>(N * P), std::vector<T>(N * P * H), std::vector<T>(N * P * H), std::vector<T>(P * D)};
  for (int64_t i = 0; i < N; ++i) {
    for (int64_t p = 0; p < P; ++p) {
      const T* s = &sources[i][p * D];
      T squares = 0;
      for (int64_t d = 0; d < D; ++d) squares += s[d] * s[d];
      const T rho = T(1) / std::sqrt(squares / T(D) + T(eps));  // Eq. 1
      read.rho[i * P + p] = rho;
      for (int64_t h = 0; h < H; ++h) {
        T product = 0;
        for (int64_t d = h * K; d < (h + 1) * K; ++d) product += query[d] * gain[d] * s[d];
        read.logits[(i * P + p) * H + h] = rho * product;  // Eq. 2
      }
    }
  }
  for (int64_t p = 0; p < P; ++p) {
    for (int64_t h = 0; h < H; ++h) {
      const auto at = [&, P = P, H = H](int64_t i) { return (i * P + p) * H + h; };
      T largest = read.logits[at(0)];
      for (int64_t i = 1; i < N; ++i) largest = std::max(largest, read.logits[at(i)]);
      T total = 0;
      for (int64_t i = 0; i < N; ++i) total += std::exp(read.logits[at(i)] - largest);
      for (int64_t i = 0; i < N; ++i) {
        const T weight = std::exp(read.logits[at(i)] - largest) / total;  // Eq. 3
        read.weights[at(i)] = weight;
        for (int64_t d = h * K; d < (h + 1) * K; ++d)
          read.output[p * D + d] += weight * sources[i][p * D + d];  // Eq. 4
      }
    }
  }
  return read;
}

template <typename T>
struct DepthReadGradients {
  std::vector<std::vector<T>> sources;  ///< N of [P, D]: this site's share; a source sums the shares of all its readers
  std::vector<T> query, gain;           ///< [D]
};

/// `read` is the result of the forward pass; delta is taken from its output, so a caller that stores the output in a
/// narrower type rounds it there first. output_gradient: [P, D].
template <typename T>
DepthReadGradients<T> depth_read_backward(const DepthReadSizes& sizes, const std::vector<std::vector<T>>& sources,
                                          std::span<const T> query, std::span<const T> gain, const DepthRead<T>& read,
                                          std::span<const T> output_gradient) {
  const auto [N, P, D, H, eps] = sizes;
  const int64_t K = sizes.channels();
  DepthReadGradients<T> result{std::vector<std::vector<T>>(N, std::vector<T>(P * D)), std::vector<T>(D),
                               std::vector<T>(D)};
  std::vector<T> dw(D);
  for (int64_t i = 0; i < N; ++i) {
    for (int64_t p = 0; p < P; ++p) {
      const T* s = &sources[i][p * D];
      const T* dO = &output_gradient[p * D];
      const T* o = &read.output[p * D];
      T* ds = &result.sources[i][p * D];
      const T rho = read.rho[i * P + p];
      T through_rho = 0;
      for (int64_t h = 0; h < H; ++h) {
        T product = 0, delta = 0;
        for (int64_t d = h * K; d < (h + 1) * K; ++d) {
          product += dO[d] * s[d];
          delta += dO[d] * o[d];
        }
        const T weight = read.weights[(i * P + p) * H + h];
        const T da = weight * (product - delta);  // Eq. 5
        through_rho += da * read.logits[(i * P + p) * H + h];
        for (int64_t d = h * K; d < (h + 1) * K; ++d) {
          ds[d] = weight * dO[d] + da * rho * query[d] * gain[d];
          dw[d] += da * rho * s[d];  // Eq. 7
        }
      }
      for (int64_t d = 0; d < D; ++d) ds[d] -= rho * rho / T(D) * s[d] * through_rho;  // Eq. 6
    }
  }
  for (int64_t d = 0; d < D; ++d) {  // Eq. 8
    result.query[d] = gain[d] * dw[d];
    result.gain[d] = query[d] * dw[d];
  }
  return result;
}

}  // namespace mhar::reference
