#pragma once
// The gate of the MLP and its gradients, element by element: Eq. 19 and 20 of docs/method.md.
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace mhar::reference {

/// gate and up: the two projections, any equal shape. Eq. 19.
template <typename T>
std::vector<T> swiglu(std::span<const T> gate, std::span<const T> up) {
  std::vector<T> result(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) result[i] = gate[i] / (T(1) + std::exp(-gate[i])) * up[i];
  return result;
}

template <typename T>
struct SwigluGradients {
  std::vector<T> gate, up;
};

/// Eq. 20.
template <typename T>
SwigluGradients<T> swiglu_backward(std::span<const T> gate, std::span<const T> up, std::span<const T> output_gradient) {
  SwigluGradients<T> result{std::vector<T>(gate.size()), std::vector<T>(gate.size())};
  for (size_t i = 0; i < gate.size(); ++i) {
    const T sigmoid = T(1) / (T(1) + std::exp(-gate[i]));
    result.gate[i] = output_gradient[i] * up[i] * sigmoid * (T(1) + gate[i] * (T(1) - sigmoid));
    result.up[i] = output_gradient[i] * gate[i] * sigmoid;
  }
  return result;
}

}  // namespace mhar::reference
