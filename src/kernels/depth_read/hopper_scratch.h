#pragma once
// What the Hopper passes of one backward chunk leave for one another in BackwardChunk::scratch.
#include <cstdint>

#include "kernels/depth_read/depth_read.h"

namespace mhar::kernels::hopper {

inline constexpr int64_t kChunk = 8;         ///< longest chunk
inline constexpr int64_t kNormBlocks = 264;  ///< most that norm_blocks can be
inline constexpr int64_t kKeyBlocks = 132;   ///< most blocks of a key gradient launch; block = split * H + head

/// Most blocks of a near backward launch of this shape: one row of sums each.
int64_t norm_blocks(const DepthSizes& sizes);

constexpr int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// Sites of a far pass, rounded up to whole tensor-core tiles.
constexpr int64_t far_rows(int64_t far_sites) { return round_up(far_sites, 16); }

/// da * rho in bf16, and partial sums in fp32. Offsets in bytes, each a multiple of 128.
struct Scratch {
  int64_t near_pairs;  ///< bf16 [kChunk, H, P, 8]: source of the chunk, head, token, site minus source; 0 past the last
  int64_t far_pairs;   ///< bf16 [P, H, far_rows, 8]: site minus far, source of the chunk; 0 past the last of either
  int64_t norm_sums;   ///< fp32 [kChunk, kNormBlocks, D]: sum of dy * o / rms over the tokens of one block
  int64_t key_sums;    ///< fp32 [kKeyBlocks / H, R, D]
  int64_t bytes;
};

inline Scratch scratch_of(const DepthSizes& z, int64_t sites) {
  Scratch s{};
  const int64_t PH = z.tokens * z.heads;
  s.near_pairs = 0;
  s.far_pairs = round_up(kChunk * PH * 8 * 2, 128);
  s.norm_sums = s.far_pairs + round_up(PH * far_rows(sites) * 8 * 2, 128);
  s.key_sums = s.norm_sums + round_up(kChunk * kNormBlocks * z.width * 4, 128);
  s.bytes = s.key_sums + round_up((kKeyBlocks / z.heads + 1) * sites * z.width * 4, 128);
  return s;
}

}  // namespace mhar::kernels::hopper
