#pragma once
// What a launch of the near backward pass is given, and how its blocks divide their shared memory.
#include "kernels/depth_read/hopper_ring.h"

namespace mhar::kernels::hopper {

struct NearBackwardPass {
  RowShape shape;
  Rows rows;    // site: dy, o, stream; source: s, partial, dO of its sites from the last to the first
  Rows source;  // s, where it stays in shared memory for as long as the token does
  bool has_site, has_source, partial;
  int sites;

  const void* weight;
  const float* norm_rho;
  void* mix;
  const void* stream;
  const float* gate;
  void* stream_gradient;
  float* gate_products;
  float* site_delta;
  float* norm_sums;  // [norm_rows, D]
  int64_t norm_rows;

  const float* rho;
  const float* keys;
  const float* lse;
  const float* deltas;
  const float* through_rho;
  void* source_gradient;
  void* pairs;  // 8 bf16 each, [H, P]
};

// 16 warps of a multiprocessor where 128 registers suffice, otherwise 8, and 20 where 96 do: narrow rows wait for
// arithmetic. In one block where keys and sums of two would leave rings no room. Fewer warps are launched where not
// even one block's do.
template <int V>
inline constexpr int kBackwardBlocks = V <= 3 ? 2 : 1;
template <int V>
inline constexpr int kBackwardMostWarps = V == 4 || V == 5 ? 16
                                          : V <= 2         ? 10
                                                           : 8;

// Sums of the norm weight's gradient are in registers where those suffice, and otherwise in shared memory, where so
// many warps share a row of them: they add to it in turn, always in the same order.
template <int V>
inline constexpr bool kSumsHeld = V <= 3 || V == 6;
template <int V>
inline constexpr int kSharers = V == 4 || V == 5 ? 4 : 1;

// Keys as they are, beside those split for tensor cores: spares putting them together again.
template <int V>
inline constexpr bool kWideKeys = V <= kMostHeld;

// Accumulators of the logits: two make chains half as long, where there are registers for them.
template <int V>
inline constexpr int kChains = V == 4 || V == 5 ? 1 : 2;

// Where each part of a block's shared memory begins; the rings are last. A warp's statistics of one token: rho and
// norm_rho, then by heads what the far pass left of c, lse of each site, delta of each site.
template <int V>
struct BackwardLayout {
  static constexpr int kBarriers = kMostDepth + 2;       // of a warp: ring, source, turn at the sums
  static constexpr int kKeyRows = kWideKeys<V> ? 4 : 2;  // of a site
  int sharers;                                           // warps of one row of sums
  int statistics, statistics_pitch, next, weight, keys, gradients, sources, sums, rings;

  __host__ __device__ BackwardLayout(const NearBackwardPass& a, int warps, int64_t blocks) {
    const int pitch = a.shape.pitch;
    sharers = kSharers<V> < warps ? kSharers<V> : warps;
    statistics = warps * kBarriers * 8;
    next = (2 + a.shape.heads * (1 + 2 * a.sites) + 3) / 4 * 16;
    statistics_pitch = a.shape.tokens > blocks * warps ? 2 * next : next;  // of the next token, if there is one
    weight = statistics + warps * statistics_pitch;
    keys = weight + (a.weight != nullptr ? pitch : 0);
    gradients = keys + a.sites * kKeyRows * pitch;
    sources = gradients + (V > kMostHeld && a.has_site && a.sites > 0 ? warps * pitch : 0);
    sums = sources + (a.source.count > 0 ? warps * pitch : 0);
    rings = sums + (a.weight != nullptr && !kSumsHeld<V> ? warps / sharers * 2 * pitch : 0);
  }

  static constexpr int kRho = 0, kNormRho = 1, kThrough = 2;
  __device__ static int lse(int site, const RowShape& shape) { return 2 + shape.heads * (1 + site); }
  __device__ static int delta(int site, int sites, const RowShape& shape) { return lse(sites + site, shape); }
};

}  // namespace mhar::kernels::hopper
