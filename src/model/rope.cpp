#include <cmath>
#include <numbers>

#include "model/decoder.h"

namespace mhar {
namespace {

// Llama 3's stretch: long wavelengths are slowed by the factor, short ones kept, those between blended.
double llama3(double frequency, const RopeScaling& rope) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double longest = rope.original_length / rope.low_frequency_factor;
  const double shortest = rope.original_length / rope.high_frequency_factor;
  if (wavelength > longest) return frequency / rope.factor;
  if (wavelength < shortest) return frequency;
  const double keep = (rope.original_length / wavelength - rope.low_frequency_factor) /
                      (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1 - keep) * frequency / rope.factor + keep * frequency;
}

}  // namespace

at::Tensor inverse_frequencies(const ModelConfig& config) {
  const int64_t half = config.head_dim / 2;
  at::Tensor result = at::empty({half}, at::kDouble);
  auto* out = result.data_ptr<double>();
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(config.rope_theta, -2.0 * i / static_cast<double>(config.head_dim));
    out[i] = config.rope.kind == "llama3"   ? llama3(frequency, config.rope)
             : config.rope.kind == "linear" ? frequency / config.rope.factor
                                            : frequency;
  }
  return result;
}

}  // namespace mhar
