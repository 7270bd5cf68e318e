#pragma once
// Far forward over at most eight sources: two tokens share a warp's 16 rows. The keys, and what a tile costs whatever
// its rows, are paid once for both, and with one tile a mix leaves as soon as it is there: nothing is accumulated.
#include "kernels/depth_read/hopper_far_forward.h"

namespace mhar::kernels::hopper::far_forward {

constexpr int kPairRows = 8;
constexpr int kAhead = 4;

template <int kSteps>  // of 16 channels in a slice
__global__ void __launch_bounds__(kMostThreads, 1) far_forward_pairs_kernel(const Forward f) {
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t base = shared_address(shared);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  begin_block(f, base);
  if (warp == f.warps) return bring_tiles(f, base, lane);
  if (warp > f.warps) return take_statistics(f, base, lane);

  const int pair = warp / f.slices, slice = warp % f.slices, g = lane >> 2;
  const uint32_t low = base + f.at.low_keys + slice * kSteps * 256 + lane * 8;
  uint32_t high[kSteps][2];
  split_keys(high, f, low, slice, pair == 0, lane);

  // Lanes of ldmatrix: for the logits, eight rows of the first token, then of the second; for the mix, 16 channels of
  // the first, then of the second, and the rows of sites leave by the same addresses.
  const uint32_t token_bytes = f.width * 2, channel = pair * 2 * token_bytes + slice * kSteps * 32;
  const uint32_t a1_at = (lane & 7) * f.at.pitch + channel + (lane >> 3 & 1) * token_bytes + (lane >> 4) * 16;
  const uint32_t a2_at = (lane & 7) * f.at.pitch + channel + (lane >> 4) * token_bytes + (lane >> 3 & 1) * 16;
  const bool real = (lane & 7) < f.count;
  const int head = warp / f.together;  // of all heads of the pairs
  // Up to four sites leave with both tokens in one step of 16 bytes a lane, more with a token at a time.
  const bool few = f.sites <= 4;
  int stage = 0;
  uint32_t phase = 0, item = 1, turn = 0;
  for (int first = blockIdx.x * f.per_block; first < f.tokens; first += gridDim.x * f.per_block, item ^= 1) {
    const uint32_t barrier = base + f.at.barriers + stage * kStageBarriers, tile = base + stage * f.at.stage;
    barrier_wait(barrier + kLanded, phase);
    float logit[4] = {0, 0, 0, 0}, rest[4] = {0, 0, 0, 0};  // of (token, site): 0 and 1 of the first token
    const uint32_t a1 = real ? tile + a1_at : base + f.at.zero;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t a[4];
      load_matrices(a, a1 + k * 32);
      const uint2 b = load_shared_8(low + k * 256);
      multiply(logit, a, high[k][0], high[k][1]);
      multiply(rest, a, b.x, b.y);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) logit[i] += rest[i];
    if (f.together > 1) {
      const uint32_t slot = base + f.at.exchange + turn * f.warps * kSlotBytes + lane * 16;
      add_slices(logit, slot, warp, head, f.together);
      turn ^= 1;  // whoever is at the next item's barrier has read this item's parts
    }
    if (f.newest) barrier_wait(barrier + kReady, phase);
    const uint2 rho = load_shared_8(tile + f.at.rho + (g * f.per_block + pair * 2) * 4);
    const float rho0 = __uint_as_float(rho.x) * kLog2OfE, rho1 = __uint_as_float(rho.y) * kLog2OfE;
    float most[4], sum[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) most[i] = logit[i] = g < f.count ? logit[i] * (i < 2 ? rho0 : rho1) : -INFINITY;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], step));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = exp2_fast(logit[i] - most[i]);
    const uint32_t b0 = transposed(pack(sum[0], sum[1])), b1 = transposed(pack(sum[2], sum[3]));
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] += __shfl_xor_sync(~0u, sum[i], step);
    }

    const bool copies = f.count == 1;
    if (!copies) {
      const uint32_t a2 = real ? tile + a2_at : base + f.at.zero;
      float scale[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) scale[i] = reciprocal_fast(sum[i]);
        // A few loads ahead of their products: one at a time would wait for each.
#pragma unroll
      for (int first_k = 0; first_k < kSteps; first_k += kAhead) {
        uint32_t a[kAhead][4];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          if (first_k + k < kSteps) load_matrices_transposed(a[k], a2 + (first_k + k) * 32);
        }
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          if (first_k + k >= kSteps) break;
          float x[4] = {0, 0, 0, 0}, y[4] = {0, 0, 0, 0};
          multiply(x, a[k][0], a[k][1], b0);
          multiply(y, a[k][2], a[k][3], b1);
          store_matrices_transposed(tile + a2_at + (first_k + k) * 32, pack(x[0] * scale[0], x[1] * scale[1]),
                                    pack(x[2] * scale[0], x[3] * scale[1]), pack(y[0] * scale[2], y[1] * scale[3]),
                                    pack(y[2] * scale[2], y[3] * scale[3]));
        }
      }
      __syncwarp();
    }
    const int own = computed_here(lane);
    if (own < 8 && warp == head * f.together) {
      const int token = pair * 2 + (own >> 2), site = 2 * (own & 3);
      const float lse0 = (own < 4 ? most[0] : most[2]) + log2_fast(own < 4 ? sum[0] : sum[2]);
      const float lse1 = (own < 4 ? most[1] : most[3]) + log2_fast(own < 4 ? sum[1] : sum[3]);
      if (first + token < f.tokens) {
        const int64_t step = int64_t{f.tokens} * f.heads;
        float* const to = f.lse + site * step + int64_t{first + token - pair} * f.heads + head;
        if (site < f.sites) to[0] = lse0 * kLnOf2;
        if (site + 1 < f.sites) to[step] = lse1 * kLnOf2;
      }
    }

    constexpr int kPieces = (kSteps + 1) / 2;
    const RowLanes out(own);
    const int row = few ? out.row & 3 : out.row, pieces = out.piece < 2 ? kPieces : kSteps / 2;
    const uint32_t row_barriers = base + f.at.barriers + f.stages * kStageBarriers;
    if (f.weight != nullptr) barrier_wait(row_barriers + kRowTaken, item);
#pragma unroll 1
    for (int i = few ? 1 : 0; i < 2; ++i) {
      const int token = few ? out.row >> 2 : i, p = first + pair * 2 + token;
      const uint32_t part = channel + token * token_bytes + out.piece * 16;
      const uint32_t from = tile + part + (copies ? 0 : row * f.at.pitch);
      uint4 value[kPieces];
#pragma unroll
      for (int j = 0; j < kPieces; ++j) value[j] = load_shared_16(from + j * 64);
      if (i == 1) {
        async_proxy_fence();
        barrier_release(barrier + kFree, value[kPieces - 1].w, lane);
      }
      if (p < f.tokens && row < f.sites) {
        Value* const to = f.mixes + row * f.row + int64_t{p} * f.width + slice * kSteps * 16 + out.piece * 8;
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          if (j < pieces) *reinterpret_cast<uint4*>(to + j * 32) = value[j];
        }
      }
      if (f.weight != nullptr && row == 0) {
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          if (j < pieces) store_shared_16(base + f.at.row + part + j * 64, value[j]);
        }
      }
    }
    if (++stage == f.stages) stage = 0, phase ^= 1;
    if (f.weight != nullptr) {
      barrier_arrive(row_barriers + kRowWritten);
    }
  }
}

}  // namespace mhar::kernels::hopper::far_forward
