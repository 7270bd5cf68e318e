#pragma once
// Counter-based random bits: Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). Nothing is stored: the bits of (seed, counter, index) are the same on every machine and in every order.
#include <cstdint>

#include "kernels/host_device.h"

namespace mhar::kernels {

/// Four words of random bits; as a counter, the least significant word first.
struct RandomBlock {
  uint32_t word[4];
};

/// The bijection itself. key: the two words of the seed, the lower one first.
MHAR_HOST_DEVICE inline RandomBlock philox(RandomBlock counter, uint32_t key0, uint32_t key1) {
  uint32_t a = counter.word[0], b = counter.word[1], c = counter.word[2], d = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xD2511F53u} * a, odd = uint64_t{0xCD9E8D57u} * c;
    a = static_cast<uint32_t>(odd >> 32) ^ b ^ key0;
    c = static_cast<uint32_t>(even >> 32) ^ d ^ key1;
    b = static_cast<uint32_t>(odd);
    d = static_cast<uint32_t>(even);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{a, b, c, d}};
}

/// The words of indices 4 block .. 4 block + 3.
MHAR_HOST_DEVICE inline RandomBlock random_block(uint64_t seed, uint64_t counter, uint64_t block) {
  return philox({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(counter),
                  static_cast<uint32_t>(counter >> 32)}},
                static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

/// 32 uniform bits. `counter` tells uses of one seed apart (the update number, the tensor), `index` elements of one
/// use.
MHAR_HOST_DEVICE inline uint32_t random_bits(uint64_t seed, uint64_t counter, uint64_t index) {
  return random_block(seed, counter, index / 4).word[index % 4];
}

}  // namespace mhar::kernels
