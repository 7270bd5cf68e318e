#pragma once
// What the kernels of the far forward pass share: sizes, shared memory, and the two warps of a block that bring tiles
// and take the statistics of whole rows.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/depth_read/hopper.h"
#include "kernels/depth_read/hopper_rows.h"

namespace mhar::kernels::hopper::far_forward {

using Value = __nv_bfloat16;
constexpr int kTile = 16;          // sources of a tile
constexpr int kMostStages = 6;     // small ones, of short passes
constexpr int kMostThreads = 640;  // for 96 registers: two blocks of 10 warps put five on each scheduler

// Byte offsets in shared memory. A tile's rows are an odd number of 16 bytes apart: ldmatrix meets no bank twice.
struct Layout {
  int pitch, rho, stage, low_keys, exchange, zero, row, barriers, bytes;
};

struct Forward {
  const Value* sources;
  float* rho;
  const float* keys;
  Value* mixes;
  float* lse;
  const Value* weight;  // of the norm, or null
  Value* normed;
  float* norm_rho;
  int64_t row;  // elements of a source
  int tokens, count, sites;
  bool newest;
  float eps;
  int width, heads;
  int slices;     // of a token
  int together;   // of them in one head
  int per_block;  // tokens: 1, 2, 4, 8 or, where a warp has two, 16
  int warps;      // that multiply
  int stages;
  float per_channel;  // 1 / D
  Layout at;
};

// Barriers of a stage, then of the row that the norm is taken of.
enum Barrier {
  kLanded = 0,
  kFree = 8,
  kReady = 16,
  kStageBarriers = 24,
  kRowWritten = 0,
  kRowTaken = 8,
  kRowBarriers = 16
};
enum Turn : uint32_t { kOfStages = 1, kOfItem = 2, kOfTile = 4 };

inline Layout layout_of(const Forward& f) {
  Layout at{};
  at.pitch = f.per_block * f.width * 2 + 16;
  at.rho = std::clamp(f.count, kMostFar, kTile) * at.pitch;  // the rows of sites leave through the tile
  at.stage = at.rho + kTile * f.per_block * 4;
  at.low_keys = f.stages * at.stage;
  at.exchange = at.low_keys + f.width * kMostFar * 2;
  at.zero = at.exchange + (f.together > 1 ? 2 * f.warps * kSlotBytes : 0);
  at.row = at.zero + f.width / f.slices * 2;
  at.barriers = at.row + f.per_block * f.width * 2;
  at.bytes = at.barriers + f.stages * kStageBarriers + kRowBarriers;
  return at;
}

__device__ inline void bring_tiles(const Forward& f, uint32_t base, int lane) {
  int stage = 0;
  uint32_t phase = 1;
  const int shift = __ffs(f.per_block) - 1, token = lane & (f.per_block - 1);
  for (int first = blockIdx.x * f.per_block; first < f.tokens; first += gridDim.x * f.per_block) {
    const int tokens = min(f.tokens - first, f.per_block);
    const uint32_t row_bytes = tokens * f.width * 2;
    const Value* from = f.sources + int64_t{first} * f.width;
    for (int source = 0; source < f.count; source += kTile, from += kTile * f.row) {
      const int rows = min(f.count - source, kTile);
      const int given = f.newest && source + rows == f.count ? rows - 1 : rows;
      const uint32_t barrier = base + f.at.barriers + stage * kStageBarriers, to = base + stage * f.at.stage;
      barrier_wait(barrier + kFree, phase);
      if (elect()) {
        barrier_expect(barrier + kLanded, rows * row_bytes);
        for (int r = 0; r < rows; ++r) bulk_load(to + r * f.at.pitch, from + r * f.row, row_bytes, barrier + kLanded);
      }
      __syncwarp();
      for (int i = lane; i < given << shift; i += 32) {
        if (token < tokens) {
          async_load<4>(to + f.at.rho + i * 4, f.rho + int64_t{source + (i >> shift)} * f.tokens + first + token);
        }
      }
      async_arrive(barrier + kLanded);
      if (++stage == f.stages) stage = 0, phase ^= 1;
    }
  }
  async_wait_all();
}

// Statistics of whole rows, one of each token of an item, by `share` lanes a token.
struct RowShare {
  int share, token, pieces;
  uint32_t first;  // byte of the lane's first piece

  __device__ float rho_of(const Forward& f, uint32_t rows) const {
    float sum = 0.0f;
#pragma unroll 4
    for (int i = 0; i < pieces; ++i) sum += sum_of_squares(load_shared_16(rows + first + i * share * 16));
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_xor_sync(~0u, sum, step);
      if (step < share) sum += other;
    }
    return rsqrtf(sum * f.per_channel + f.eps);
  }
};

__device__ inline void take_statistics(const Forward& f, uint32_t base, int lane) {
  RowShare own{.share = 32 / f.per_block, .token = 0, .pieces = 0, .first = 0};
  own.token = lane / own.share;
  const int piece = lane % own.share, all = f.width / 8;
  own.pieces = piece < all ? (all - piece - 1) / own.share + 1 : 0;
  own.first = (own.token * f.width + piece * 8) * 2;
  const uint32_t row_barriers = base + f.at.barriers + f.stages * kStageBarriers;
  const int step = gridDim.x * f.per_block;
  int stage = 0;
  uint32_t phase = 0, turn = 0;
  for (int first = blockIdx.x * f.per_block;; first += step) {
    if (f.newest && first < f.tokens) {
      for (int source = 0; source < f.count; source += kTile) {
        const uint32_t barrier = base + f.at.barriers + stage * kStageBarriers, tile = base + stage * f.at.stage;
        barrier_wait(barrier + kLanded, phase);
        if (source + kTile >= f.count) {
          const int row = f.count - 1 - source;
          const float rho = own.rho_of(f, tile + row * f.at.pitch);
          if (piece == 0) {
            store_shared(tile + f.at.rho + (row * f.per_block + own.token) * 4, rho);
            if (first + own.token < f.tokens) f.rho[int64_t{f.count - 1} * f.tokens + first + own.token] = rho;
          }
        }
        barrier_arrive(barrier + kReady);
        if (++stage == f.stages) stage = 0, phase ^= 1;
      }
    }
    const int p = first - step + own.token;  // of the item before
    if (f.weight != nullptr && first >= step) {
      barrier_wait(row_barriers + kRowWritten, turn);
      turn ^= 1;
      const float rho = own.rho_of(f, base + f.at.row);
      if (p < f.tokens) {
        if (piece == 0) f.norm_rho[p] = rho;
        const Value* weight = f.weight + piece * 8;
        Value* to = f.normed + int64_t{p} * f.width + piece * 8;
#pragma unroll 2
        for (int i = 0; i < own.pieces; ++i, weight += own.share * 8, to += own.share * 8) {
          const uint4 x = load_shared_16(base + f.at.row + own.first + i * own.share * 16);
          *reinterpret_cast<uint4*>(to) = normed(x, rho, *reinterpret_cast<const uint4*>(weight));
        }
      }
      barrier_arrive(row_barriers + kRowTaken);
    }
    if (first >= f.tokens) return;
  }
}

// Barriers and zeros of a block, then the order of kernels.
__device__ __forceinline__ void begin_block(const Forward& f, uint32_t base) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < f.stages; ++s) {
      const uint32_t barrier = base + f.at.barriers + s * kStageBarriers;
      barrier_init(barrier + kLanded, 33);  // the announcement, and each lane's statistics
      barrier_init(barrier + kFree, f.warps);
      barrier_init(barrier + kReady, 32);
    }
    barrier_init(base + f.at.barriers + f.stages * kStageBarriers + kRowWritten, f.warps * 32);
    barrier_init(base + f.at.barriers + f.stages * kStageBarriers + kRowTaken, 32);
  }
  if (threadIdx.x < f.width / f.slices / 2) store_shared(base + f.at.zero + threadIdx.x * 4, 0u);
  barrier_init_fence();
  __syncthreads();
  wait_for_previous_kernel();
  allow_next_kernel();
}

// A key is two bf16 terms: the first stays in registers, the rest in shared memory in the order of the fragments.
template <int kSteps>  // of 16 channels in a slice
__device__ __forceinline__ void split_keys(uint32_t (&high)[kSteps][2], const Forward& f, uint32_t low, int slice,
                                           bool writes, int lane) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    uint2 rest = make_uint2(0, 0);
    high[k][0] = high[k][1] = 0;
    if (g < f.sites) {
      const float* key = f.keys + int64_t{g} * f.width + (slice * kSteps + k) * 16 + 2 * t;
      const float2 x = *reinterpret_cast<const float2*>(key), y = *reinterpret_cast<const float2*>(key + 8);
      high[k][0] = pack(x.x, x.y);
      high[k][1] = pack(y.x, y.y);
      rest.x = pack(x.x - first_of(high[k][0]), x.y - second_of(high[k][0]));
      rest.y = pack(y.x - first_of(high[k][1]), y.y - second_of(high[k][1]));
    }
    if (writes) store_shared_8(low + k * 256, rest);
  }
  named_barrier(15, f.warps * 32);
}

// Logits of a head from its slices, by slots of all warps.
__device__ __forceinline__ void add_slices(float (&logit)[4], uint32_t slot, int warp, int head, int together) {
  store_shared_16(slot + warp * kSlotBytes, make_uint4(__float_as_uint(logit[0]), __float_as_uint(logit[1]),
                                                       __float_as_uint(logit[2]), __float_as_uint(logit[3])));
  named_barrier(1 + head, together * 32);
  logit[0] = logit[1] = logit[2] = logit[3] = 0.0f;
  slot += head * together * kSlotBytes;
#pragma unroll 2
  for (int s = 0; s < together; ++s, slot += kSlotBytes) {
    const uint4 x = load_shared_16(slot);
    logit[0] += __uint_as_float(x.x), logit[1] += __uint_as_float(x.y);
    logit[2] += __uint_as_float(x.z), logit[3] += __uint_as_float(x.w);
  }
}

}  // namespace mhar::kernels::hopper::far_forward
