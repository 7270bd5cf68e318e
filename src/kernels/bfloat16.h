#pragma once
// bfloat16 as its 16 bits, on host and device alike, with no header of a framework.
#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"

namespace mhar::kernels {

MHAR_HOST_DEVICE inline uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

MHAR_HOST_DEVICE inline float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

MHAR_HOST_DEVICE inline float bfloat16_to_float(uint16_t bits) { return float_from_bits(uint32_t{bits} << 16); }

/// A NaN keeps its sign and upper payload and becomes quiet: dropping its lower bits alone could leave an infinity.
MHAR_HOST_DEVICE inline uint32_t bfloat16_or_nan(uint32_t bits, uint32_t rounded) {
  return (bits & 0x7FFFFFFFu) > 0x7F800000u ? (bits >> 16) | 0x40u : rounded;
}

/// Eq. 28: nearest, ties to even. Finite values from 2^128 - 2^119 on become infinite, as IEEE rounding has it.
MHAR_HOST_DEVICE inline uint16_t bfloat16_nearest(float value) {
  const uint32_t bits = float_bits(value);
  return static_cast<uint16_t>(bfloat16_or_nan(bits, (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16));
}

/// Eq. 29: away from zero with the probability of the dropped part; only the low 16 bits of `random` count.
/// Infinities and values that are bfloat16 already come back unchanged. A finite value stays finite: above the largest
/// bfloat16 there is no neighbour to round to, so the largest one is taken.
MHAR_HOST_DEVICE inline uint16_t bfloat16_stochastic(float value, uint32_t random) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t sum = (magnitude + (random & 0xFFFFu)) >> 16;
  const uint32_t largest = magnitude < 0x7F800000u ? 0x7F7Fu : 0x7F80u;
  const uint32_t rounded = (bits >> 31 << 15) | (sum < largest ? sum : largest);
  return static_cast<uint16_t>(bfloat16_or_nan(bits, rounded));
}

}  // namespace mhar::kernels
