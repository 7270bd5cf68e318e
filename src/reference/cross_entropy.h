#pragma once
// Cross entropy with ignored targets and z-loss, and its gradient: Eq. 21 to 23 of docs/method.md.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace mhar::reference {

enum class Reduction { mean, sum };  ///< over the counted targets; the mean over none is 0

struct CrossEntropySizes {
  int64_t rows, vocabulary;  ///< P, V
  Reduction reduction = Reduction::mean;
  double z_loss = 0.0;  ///< z of Eq. 22
};

template <typename T>
struct CrossEntropy {
  int64_t counted = 0;            ///< targets >= 0
  T loss = 0;                     ///< nats, reduced; without the z-loss
  T z_loss = 0;                   ///< Eq. 22, reduced the same way; part of the gradient only
  std::vector<T> log_normaliser;  ///< [P]
  std::vector<T> gradient;        ///< [P, V], of loss + z_loss with respect to the logits
};

/// logits: [P, V]; targets: [P], below V; a negative target is ignored: no loss, gradient 0.
template <typename T>
CrossEntropy<T> cross_entropy(const CrossEntropySizes& sizes, std::span<const T> logits,
                              std::span<const int64_t> targets) {
  const auto [P, V, reduction, z] = sizes;
  CrossEntropy<T> result;
  result.log_normaliser.resize(P);
  result.gradient.resize(P * V);
  for (int64_t target : targets) result.counted += target >= 0;
  const T share = reduction == Reduction::sum ? T(1) : T(1) / T(std::max<int64_t>(result.counted, 1));
  for (int64_t p = 0; p < P; ++p) {
    const T* x = &logits[p * V];
    T* gradient = &result.gradient[p * V];
    const T largest = *std::max_element(x, x + V);
    // The target's term stays apart: p - 1 = -(sum of the others) keeps its digits where p is close to 1.
    T others = 0;
    for (int64_t c = 0; c < V; ++c) {
      if (c != targets[p]) others += std::exp(x[c] - largest);
    }
    const T total = targets[p] < 0 ? others : others + std::exp(x[targets[p]] - largest);
    const T log_normaliser = largest + std::log(total);
    result.log_normaliser[p] = log_normaliser;
    if (targets[p] < 0) continue;
    result.loss += share * ((largest - x[targets[p]]) + std::log(total));  // Eq. 21
    result.z_loss += share * T(z) * log_normaliser * log_normaliser;       // Eq. 22
    const T through_z = T(2) * T(z) * log_normaliser;
    for (int64_t c = 0; c < V; ++c) {  // Eq. 23
      const T probability = std::exp(x[c] - largest) / total;
      const T data = c == targets[p] ? -others / total : probability;
      gradient[c] = share * (data + through_z * probability);
    }
  }
  return result;
}

}  // namespace mhar::reference
