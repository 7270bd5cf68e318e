#pragma once
// Sums of a head's dot products over the warps, and blocks, that each hold a slice of its channels.
#include "kernels/depth_read/hopper_far_backward.h"

namespace mhar::kernels::hopper::far_backward_pass {

__device__ __forceinline__ void add_4(float (&sum)[4], uint32_t at) {
  const uint4 part = load_shared_16(at);
  sum[0] += __uint_as_float(part.x), sum[1] += __uint_as_float(part.y);
  sum[2] += __uint_as_float(part.z), sum[3] += __uint_as_float(part.w);
}

// What a warp needs to add up the dot products of its head; everything is done twice a tile, for a and for dp.
struct HeadSum {
  uint32_t slots, mine;           // of the head's first warp in this block, and of this warp; turn 0
  uint32_t received, barriers;    // of the token; turn 0
  int local, slice, token, lane;  // slices of the head in this block, and which one this is
  int turn = 0;
  uint32_t phase = 0;
};

// Turns alternate: who has the parts of one turn knows that all others have read those of the turn before.
__device__ inline void sum_over_head(const Backward& b, HeadSum& h, float (&a)[4], float (&dp)[4]) {
  const uint32_t turn_at = h.turn * kWarps * kDotBytes + h.lane * 16;
  if (h.local > 1) {
    store_shared_16(h.mine + turn_at, make_uint4(__float_as_uint(a[0]), __float_as_uint(a[1]), __float_as_uint(a[2]),
                                                 __float_as_uint(a[3])));
    store_shared_16(h.mine + turn_at + 512, make_uint4(__float_as_uint(dp[0]), __float_as_uint(dp[1]),
                                                       __float_as_uint(dp[2]), __float_as_uint(dp[3])));
    named_barrier(1 + h.token, b.block * 32);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = dp[i] = 0.0f;
    for (int s = 0; s < h.local; ++s) {
      add_4(a, h.slots + turn_at + s * kDotBytes);
      add_4(dp, h.slots + turn_at + s * kDotBytes + 512);
    }
  }
  if (b.cluster > 1) {  // the head's first warp sends the block's a to all blocks, its last warp dp
    const uint32_t barrier = h.barriers + h.turn * b.per_block * 8;
    const uint32_t parts = h.received + h.turn * b.per_block * b.cluster * kDotBytes + h.lane * 16;
    const uint32_t part = parts + blockIdx.x % b.cluster * kDotBytes;
    if (h.slice == 0 && h.lane == 0) barrier_expect(barrier, b.cluster * kDotBytes);
    for (int rank = 0; rank < b.cluster; ++rank) {
      const uint32_t to = cluster_address(part, rank), there = cluster_address(barrier, rank);
      if (h.slice == 0) cluster_store_16(to, a, there);
      if (h.slice == h.local - 1) cluster_store_16(to + 512, dp, there);
    }
    barrier_wait(barrier, h.phase);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = dp[i] = 0.0f;
    for (int rank = 0; rank < b.cluster; ++rank) {
      add_4(a, parts + rank * kDotBytes);
      add_4(dp, parts + rank * kDotBytes + 512);
    }
    h.phase ^= h.turn;
  }
  h.turn ^= 1;
}

}  // namespace mhar::kernels::hopper::far_backward_pass
