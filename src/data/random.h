#pragma once
#include <cstdint>

namespace mhar::data {

constexpr uint64_t golden_step = 0x9E3779B97F4A7C15u;  ///< 2^64 / golden ratio, odd

/// SplitMix64's finaliser (Steele, Lea and Flood 2014): a bijection of 64 bits.
constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Number `index` of the random sequence of `seed`, without the ones before it. python/mhar/shards.py holds the same.
/// The seed is mixed first: neighbouring seeds would otherwise give shifted copies of one sequence.
constexpr uint64_t draw(uint64_t seed, uint64_t index) { return mix(mix(seed) + (index + 1) * golden_step); }

/// A stream of 64-bit numbers, the same on every platform.
class Random {
 public:
  constexpr Random(uint64_t seed, uint64_t stream) : state_(draw(seed, stream)) {}
  constexpr uint64_t next() { return mix(state_ += golden_step); }
  /// Uniform in [0, bound) without bias: the 2^64 mod bound lowest values are drawn again. bound > 0.
  constexpr uint64_t below(uint64_t bound) {
    const uint64_t rejected = (0 - bound) % bound;
    uint64_t value = next();
    while (value < rejected) value = next();
    return value % bound;
  }

 private:
  uint64_t state_;
};

/// Whether non-empty document number `document` (0, 1, ... in order) belongs to the validation split. Needs no
/// knowledge of later documents, so a corpus can be streamed. One of the first two goes to each split, so that neither
/// is empty; the caller puts a lone document into the training split. `fraction` in [0, 1); 0: no validation split.
constexpr bool in_validation(uint64_t seed, uint64_t document, double fraction) {
  if (!(fraction > 0.0)) return false;
  if (document < 2) return (document == 0) == (draw(seed, 0) <= draw(seed, 1));
  return static_cast<double>(draw(seed, document) >> 11) * 0x1p-53 < fraction;
}

}  // namespace mhar::data
