#pragma once
// Rotary positions on halves: Eq. 11 to 14 of docs/method.md. K here is the width of one attention head.
#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>
#include <vector>

namespace mhar::reference {

struct RotaryScaling {
  enum class Kind { none, linear, llama3 } kind = Kind::none;
  double factor = 1.0;
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  ///< llama3
  double original_length = 8192;                                   ///< llama3, positions
};

/// Angle per position of each of the head_dim / 2 pairs, in radians. head_dim is even.
template <typename T>
std::vector<T> inverse_frequencies(int64_t head_dim, double theta, const RotaryScaling& scaling = {}) {
  std::vector<T> result;
  for (int64_t j = 0; j < head_dim / 2; ++j) {
    double frequency = std::pow(theta, -2.0 * double(j) / double(head_dim));       // Eq. 11
    if (scaling.kind == RotaryScaling::Kind::linear) frequency /= scaling.factor;  // Eq. 12
    if (scaling.kind == RotaryScaling::Kind::llama3) {                             // Eq. 13
      const double turns = scaling.original_length * frequency / (2 * std::numbers::pi);
      if (turns < scaling.low_frequency_factor) {
        frequency /= scaling.factor;
      } else if (turns <= scaling.high_frequency_factor) {
        const double kept =
            (turns - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor);
        frequency = kept * frequency + (1 - kept) * frequency / scaling.factor;
      }
    }
    result.push_back(T(frequency));
  }
  return result;
}

struct RotarySizes {
  int64_t batch, length, heads, head_dim;  ///< positions run 0 .. length - 1 in every sequence of the batch
};

enum class Turn { forward, backward };  ///< backward turns by the opposite angle: the gradient of forward

/// Eq. 14. x: [batch, length, heads, head_dim]; frequencies: [head_dim / 2].
template <typename T>
std::vector<T> rotate(const RotarySizes& sizes, std::span<const T> frequencies, std::span<const T> x, Turn turn) {
  const auto [B, L, heads, K] = sizes;
  std::vector<T> result(x.size());
  for (int64_t row = 0; row < B * L * heads; ++row) {
    const int64_t position = row / heads % L;
    for (int64_t j = 0; j < K / 2; ++j) {
      const T angle = T(position) * frequencies[j];
      const T cosine = std::cos(angle), sine = turn == Turn::forward ? std::sin(angle) : -std::sin(angle);
      const T first = x[row * K + j], second = x[row * K + j + K / 2];
      result[row * K + j] = first * cosine - second * sine;
      result[row * K + j + K / 2] = second * cosine + first * sine;
    }
  }
  return result;
}

}  // namespace mhar::reference
