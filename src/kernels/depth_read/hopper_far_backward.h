#pragma once
// What the far backward kernel is told, and how heads, slices of heads and tokens are laid out over blocks.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/depth_read/hopper.h"
#include "kernels/depth_read/hopper_rows.h"

namespace mhar::kernels::hopper::far_backward_pass {

using Value = __nv_bfloat16;
constexpr int kTile = 16;  // sites of a tile
constexpr int kWarps = 8;
constexpr int kBringers = 4;  // one warp cannot send for 64 pieces a tile fast enough: 25 to 50 cycles each
constexpr int kMostStages = 6;
constexpr int kDotBytes = 1024;  // a and dp of a tile in fp32
constexpr int kMostCluster = 8;  // blocks, what every device can place

// Byte offsets in shared memory. Rows are an odd number of 16 bytes apart: ldmatrix meets no bank twice.
struct Layout {
  int pitch, key_pitch, statistics, stage_keys, stage, keys, slot, slots, received, zero, barriers, bytes;
};

struct Backward {
  const Value* sources;
  const float* rho;
  const float* keys;
  bool streamed;            // the keys come with the tiles, as two terms
  const Value* split_keys;  // [2, sites, D] where streamed
  const Value* mix_gradients;
  const float* lse;
  const float* deltas;
  Value* partials;
  float* through_rho;
  Value* pairs;
  int64_t row, statistics;  // elements of a source, and of one site's lse
  int tokens, count, sites, rows;
  int width, heads;
  int slice;      // channels of a warp
  int together;   // slices of a head
  int block;      // slices of a block
  int per_block;  // tokens
  int groups;     // blocks that share a token
  int cluster;    // of them that share a head
  int stages;
  Layout at;

  __host__ __device__ int block_heads() const { return max(1, block / together); }
};

inline Layout layout_of(const Backward& b) {
  const int width = b.block * b.slice;
  Layout at{};
  at.pitch = b.per_block * width * 2 + 16;
  at.key_pitch = width * 2 + 16;
  at.statistics = kTile * at.pitch;  // lse and delta [16, tokens, heads] each; rho of the sources in the same place
  at.stage_keys = at.statistics + 2 * kTile * b.per_block * b.block_heads() * 4;
  at.stage = at.stage_keys + (b.streamed ? 2 * kTile * at.key_pitch : 0);
  at.keys = b.stages * at.stage;
  at.slots = at.keys + (b.streamed ? 0 : 2 * b.sites * at.key_pitch);
  at.slot = b.together > 1 ? kDotBytes : kSlotBytes;
  at.received = at.slots + (b.together > 1 ? 2 : 1) * kWarps * at.slot;
  at.zero = at.received + (b.cluster > 1 ? 2 * b.per_block * b.cluster * kDotBytes : 0);
  at.barriers = at.zero + b.slice * 2;
  at.bytes = at.barriers + b.stages * 16 + 2 * b.per_block * 8;
  return at;
}

// Slices and tokens of a block of this many slices; false where heads and blocks do not fit into one another.
inline bool arrange(Backward& b, int block) {
  const int slices = b.width / b.slice;
  if (slices % block != 0 || (block % b.together != 0 && b.together % block != 0)) return false;
  b.block = block;
  b.per_block = kWarps / block;
  b.groups = slices / block;
  b.cluster = std::max(1, b.together / block);
  return b.cluster <= kMostCluster;
}

inline bool fits(Backward& b, int stages) {
  b.stages = stages;
  b.at = layout_of(b);
  return b.at.bytes <= kMostShared;
}

// Resident keys in blocks of up to 512 channels, the widest first: longer copies. Three stages before two. Where the
// keys of the sites do not fit, they come with the tiles, for as many tokens at a time as possible.
inline bool choose(Backward& b) {
  constexpr int kResidentWidth = 512;
  bool found = false;
  for (int stages = 3; stages >= 2 && !found; --stages) {
    for (int block = kWarps; block >= 1 && !found; block /= 2) {
      found = (block * b.slice <= kResidentWidth) && arrange(b, block) && fits(b, stages);
    }
  }
  if (!found) {
    b.streamed = true;
    for (int block = 1; block <= kWarps && !found; block *= 2) found = arrange(b, block) && fits(b, 2);
  }
  if (!found) return false;
  int stages = kMostStages;
  while (!fits(b, stages)) --stages;
  return true;
}

}  // namespace mhar::kernels::hopper::far_backward_pass
