#pragma once
// Gradient clipping and one AdamW update: Eq. 25 to 27 of docs/method.md.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace mhar::reference {

/// Factor on every gradient, from the norm over all of them. Eq. 25.
inline double clip_factor(double norm, double limit) { return std::min(1.0, limit / (norm + 1e-6)); }

struct AdamwSettings {
  double rate, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
  double gradient_scale = 1.0;  ///< the clip factor
  int64_t update = 1;           ///< t, counted from 1
};

/// All spans of one length; moments are zero before the first update.
template <typename T>
void adamw(const AdamwSettings& settings, std::span<T> parameter, std::span<const T> gradient, std::span<T> moment1,
           std::span<T> moment2) {
  const T b1 = T(settings.beta1), b2 = T(settings.beta2);
  const T correction1 = T(1 - std::pow(settings.beta1, double(settings.update)));
  const T correction2 = T(1 - std::pow(settings.beta2, double(settings.update)));
  for (size_t i = 0; i < parameter.size(); ++i) {
    const T g = T(settings.gradient_scale) * gradient[i];
    moment1[i] = b1 * moment1[i] + (T(1) - b1) * g;  // Eq. 26
    moment2[i] = b2 * moment2[i] + (T(1) - b2) * g * g;
    const T step = (moment1[i] / correction1) / (std::sqrt(moment2[i] / correction2) + T(settings.eps));
    parameter[i] = parameter[i] * T(1 - settings.rate * settings.decay) - T(settings.rate) * step;  // Eq. 27
  }
}

}  // namespace mhar::reference
