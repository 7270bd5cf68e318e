#pragma once
// The portable CUDA passes and what those of one backward chunk leave for one another in BackwardChunk::scratch.
#include <algorithm>
#include <cstdint>

#include "kernels/depth_read/depth_read.h"

namespace mhar::kernels::portable {

inline constexpr int64_t kMostSites = 1024;  ///< whose logits of one head fit into shared memory
inline constexpr int kNormResident = 5;      ///< blocks of near backward per multiprocessor
inline constexpr int64_t kNormBlocks = 660;  ///< and most of a launch: as many as fit on 132 multiprocessors
inline constexpr int64_t kKeyBlocks = 528;   ///< of the key gradients over sites, channels and tokens: about as many
inline constexpr int64_t kSiteTile = 8;      ///< sites that a thread of the key gradients sums at a time
inline constexpr int kThreads = 128;         ///< of a block

constexpr int64_t quotient_up(int64_t value, int64_t step) { return (value + step - 1) / step; }
constexpr int64_t round_up(int64_t value, int64_t step) { return quotient_up(value, step) * step; }

/// Channels that a thread takes at a time: 8 where no run of 8 crosses a head.
constexpr int channel_run(const DepthSizes& z) { return z.width / z.heads % 8 == 0 ? 8 : 1; }

/// Blocks of tokens depend on the sizes alone, so that all devices sum in one order.
constexpr int64_t norm_blocks(const DepthSizes& z) { return std::min(z.tokens, kNormBlocks); }
/// Tokens in parts, so that there are kKeyBlocks of the key gradients where fewer sites or channels would leave a
/// device idle; at least 4, since shorter sums are more accurate.
constexpr int64_t key_blocks(const DepthSizes& z, int64_t rows) {
  const int64_t others = rows / kSiteTile * quotient_up(z.width, kThreads * channel_run(z));
  return std::min(quotient_up(z.tokens, 32), std::max(kKeyBlocks / others, int64_t{4}));
}

/// All fp32; offsets in bytes, multiples of 256.
struct Scratch {
  int64_t columns;    ///< C, the chunk's sources
  int64_t rows;       ///< W, sites first .. R-1, rounded up to kSiteTile
  int64_t pairs;      ///< da * rho [P, H, C, W]; undefined where the site is older than the source, and past the last
  int64_t blocks;     ///< of tokens, of the key gradients
  int64_t norm_sums;  ///< [C, norm blocks, D]: sum of dy * n over the tokens of one block
  int64_t key_sums;   ///< [blocks, W, D]
  int64_t bytes;
};

/// For `columns` sources of which the oldest is read by `sites` sites.
constexpr Scratch scratch_of(const DepthSizes& z, int64_t sites, int64_t columns) {
  Scratch s{};
  s.columns = columns;
  s.rows = round_up(sites, kSiteTile);
  s.blocks = key_blocks(z, s.rows);
  s.pairs = 0;
  s.norm_sums = s.pairs + round_up(z.tokens * z.heads * columns * s.rows * 4, 256);
  s.key_sums = s.norm_sums + round_up(columns * norm_blocks(z) * z.width * 4, 256);
  s.bytes = s.key_sums + round_up(s.blocks * s.rows * z.width * 4, 256);
  return s;
}

constexpr Scratch scratch_of(const DepthSizes& z, const BackwardChunk& chunk) {
  return scratch_of(z, chunk.sites - chunk.first, chunk.count);
}

int far_forward(const DepthSizes& z, const FarForward& pass, void* queue);
int near_forward(const DepthSizes& z, const NearForward& pass, void* queue);
int near_backward(const DepthSizes& z, const BackwardChunk& chunk, const NearBackward& pass, void* queue);
int far_backward(const DepthSizes& z, const BackwardChunk& chunk, const FarBackward& pass, void* queue);
int chunk_gradients(const DepthSizes& z, const BackwardChunk& chunk, const ChunkGradients& pass, void* queue);

}  // namespace mhar::kernels::portable
