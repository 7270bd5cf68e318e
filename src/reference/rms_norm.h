#pragma once
// RMSNorm and its gradients: Eq. 9 and 10 of docs/method.md. The query and key norms are the same with one row per
// head.
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace mhar::reference {

struct RmsNormSizes {
  int64_t rows, width;
  double eps = 1e-6;
};

template <typename T>
struct RmsNorm {
  std::vector<T> scale;   ///< [rows], 1 / rms
  std::vector<T> output;  ///< [rows, width]
};

/// x: [rows, width]; weight: [width].
template <typename T>
RmsNorm<T> rms_norm(const RmsNormSizes& sizes, std::span<const T> x, std::span<const T> weight) {
  const int64_t D = sizes.width;
  RmsNorm<T> result{std::vector<T>(sizes.rows), std::vector<T>(sizes.rows * D)};
  for (int64_t row = 0; row < sizes.rows; ++row) {
    T squares = 0;
    for (int64_t d = 0; d < D; ++d) squares += x[row * D + d] * x[row * D + d];
    const T scale = T(1) / std::sqrt(squares / T(D) + T(sizes.eps));
    result.scale[row] = scale;
    for (int64_t d = 0; d < D; ++d) result.output[row * D + d] = weight[d] * (scale * x[row * D + d]);  // Eq. 9
  }
  return result;
}

template <typename T>
struct RmsNormGradients {
  std::vector<T> x;       ///< [rows, width]
  std::vector<T> weight;  ///< [width]
};

/// Eq. 10. output_gradient: [rows, width].
template <typename T>
RmsNormGradients<T> rms_norm_backward(const RmsNormSizes& sizes, std::span<const T> x, std::span<const T> weight,
                                      const RmsNorm<T>& norm, std::span<const T> output_gradient) {
  const int64_t D = sizes.width;
  RmsNormGradients<T> result{std::vector<T>(sizes.rows * D), std::vector<T>(D)};
  for (int64_t row = 0; row < sizes.rows; ++row) {
    const T scale = norm.scale[row];
    T mean = 0;
    for (int64_t d = 0; d < D; ++d) mean += output_gradient[row * D + d] * weight[d] * scale * x[row * D + d];
    mean /= T(D);
    for (int64_t d = 0; d < D; ++d) {
      const T normalised = scale * x[row * D + d];
      result.x[row * D + d] = scale * (output_gradient[row * D + d] * weight[d] - normalised * mean);
      result.weight[d] += output_gradient[row * D + d] * normalised;
    }
  }
  return result;
}

}  // namespace mhar::reference
