// Far forward, Eq. 37, with Eq. 9 of the first site. Per token and head, 16 sources by 8 sites: logits = S W^T and mix
// = S^T exp(logits) are tensor-core products with the depth on the side of 16, so nothing is padded up to eight sites,
// and the softmax runs down the lanes. Persistent blocks: one warp brings tiles of 16 sources, one takes the statistics
// of whole rows (rho of the newest source, an item ahead, and the norm, an item behind), so that the others, which own
// a slice of channels of a token each, never wait for one another; only slices of one head, which add up their logits.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/depth_read/hopper_far_forward.h"
#include "kernels/depth_read/hopper_far_forward_pairs.h"

namespace mhar::kernels::hopper {
namespace {

using namespace far_forward;

template <int kSteps>  // of 16 channels in a slice
__global__ void __launch_bounds__(kMostThreads, 1) far_forward_kernel(const Forward f) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kSlice = kSteps * 16;
  const uint32_t base = shared_address(shared);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  begin_block(f, base);
  if (warp == f.warps) return bring_tiles(f, base, lane);
  if (warp > f.warps) return take_statistics(f, base, lane);

  const int token = warp / f.slices, slice = warp % f.slices, g = lane >> 2;
  const uint32_t low = base + f.at.low_keys + slice * kSteps * 256 + lane * 8;
  uint32_t high[kSteps][2];
  split_keys(high, f, low, slice, token == 0, lane);

  // Rows of a lane for ldmatrix: as they are for the logits, turned for the mix. Rows past the last source are zero.
  const int row1 = lane & 15, row2 = (lane & 7) + (lane >> 4) * 8;
  const uint32_t channel = (token * f.width + slice * kSlice) * 2;
  const uint32_t a1_at = row1 * f.at.pitch + channel + (lane >> 4) * 16;
  const uint32_t a2_at = row2 * f.at.pitch + channel + (lane >> 3 & 1) * 16;
  const uint32_t zero = base + f.at.zero;
  const int head = warp / f.together;  // of all heads of the item's tokens
  int stage = 0;
  uint32_t turns = kOfItem;  // parities, one bit each: together they cost one register
  for (int first = blockIdx.x * f.per_block; first < f.tokens; first += gridDim.x * f.per_block, turns ^= kOfItem) {
    float mix[kSteps][4];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) mix[k][0] = mix[k][1] = mix[k][2] = mix[k][3] = 0.0f;
    float most0 = -INFINITY, most1 = -INFINITY, sum0 = 0.0f, sum1 = 0.0f;  // sites 2t, 2t + 1; in powers of two
    uint32_t tile = 0, barrier = 0;
    for (int source = 0;; source += kTile) {
      const int rows = min(f.count - source, kTile);
      barrier = base + f.at.barriers + stage * kStageBarriers;
      tile = base + stage * f.at.stage;
      barrier_wait(barrier + kLanded, turns & kOfStages);
      float logit[4] = {0, 0, 0, 0}, rest[4] = {0, 0, 0, 0};
      const uint32_t a1 = row1 < rows ? tile + a1_at : zero;
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
        const uint32_t slot =
            base + f.at.exchange + (turns & kOfTile ? f.warps * kSlotBytes : 0) + computed_here(lane) * 16;
        add_slices(logit, slot, computed_here(threadIdx.x) / 32, computed_here(head), f.together);
        // The slots alternate: whoever is at the next tile's barrier has read this tile's parts.
        turns ^= kOfTile;
      }
      // In every tile: a stage is not filled again before its statistics are taken.
      if (f.newest) barrier_wait(barrier + kReady, turns & kOfStages);
      const uint32_t rho_at = tile + f.at.rho + (g * f.per_block + token) * 4;
      const float rho0 = load_shared(rho_at) * kLog2OfE, rho1 = load_shared(rho_at + 8 * f.per_block * 4) * kLog2OfE;
      logit[0] = g < rows ? logit[0] * rho0 : -INFINITY;
      logit[1] = g < rows ? logit[1] * rho0 : -INFINITY;
      logit[2] = g + 8 < rows ? logit[2] * rho1 : -INFINITY;
      logit[3] = g + 8 < rows ? logit[3] * rho1 : -INFINITY;
      float top0 = fmaxf(logit[0], logit[2]), top1 = fmaxf(logit[1], logit[3]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        top0 = fmaxf(top0, __shfl_xor_sync(~0u, top0, step));
        top1 = fmaxf(top1, __shfl_xor_sync(~0u, top1, step));
      }
      top0 = fmaxf(top0, most0), top1 = fmaxf(top1, most1);
      const float p0 = exp2_fast(logit[0] - top0), p1 = exp2_fast(logit[1] - top1);
      const float p2 = exp2_fast(logit[2] - top0), p3 = exp2_fast(logit[3] - top1);
      if (source > 0) {
        const float keep0 = exp2_fast(most0 - top0), keep1 = exp2_fast(most1 - top1);
        sum0 *= keep0, sum1 *= keep1;
#pragma unroll
        for (int k = 0; k < kSteps; ++k) mix[k][0] *= keep0, mix[k][1] *= keep1, mix[k][2] *= keep0, mix[k][3] *= keep1;
      }
      most0 = top0, most1 = top1;
      sum0 += p0 + p2, sum1 += p1 + p3;
      const uint32_t b0 = transposed(pack(p0, p1)), b1 = transposed(pack(p2, p3));
      const uint32_t a2 = row2 < rows ? tile + a2_at : zero;
      uint32_t last = 0;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        uint32_t a[4];
        load_matrices_transposed(a, a2 + k * 32);
        last = a[3];
        multiply(mix[k], a, b0, b1);
      }
      if (++stage == f.stages) stage = 0, turns ^= kOfStages;
      if (source + kTile >= f.count) break;
      barrier_release(barrier + kFree, last, lane);
    }

#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      sum0 += __shfl_xor_sync(~0u, sum0, step);
      sum1 += __shfl_xor_sync(~0u, sum1, step);
    }
    const int p = first + token;
    const bool here = p < f.tokens;
    const int own = computed_here(lane);
    const RowLanes out(own);
    if (own < 4 && computed_here(threadIdx.x) / 32 == computed_here(head) * f.together && here) {
      const int64_t site = int64_t{f.tokens} * f.heads;
      float* const to = f.lse + 2 * own * site + int64_t{first} * f.heads + static_cast<unsigned>(head);
      if (2 * own < f.sites) to[0] = (most0 + log2_fast(sum0)) * kLnOf2;
      if (2 * own + 1 < f.sites) to[site] = (most1 + log2_fast(sum1)) * kLnOf2;
    }
    // The warp's own part of the tile, read for the last time, takes its rows.
    const uint32_t rows_at = tile + channel;
    const bool copies = f.count == 1;
    if (!copies) {
      stage_rows<kSteps>(mix, reciprocal_fast(sum0), reciprocal_fast(sum1), rows_at, f.at.pitch, own);
      __syncwarp();
    }
    const uint32_t from = rows_at + (copies ? 0 : out.row * f.at.pitch) + out.piece * 16;
    Value* const to = f.mixes + out.row * f.row + int64_t{p} * f.width + slice * kSlice + out.piece * 8;
    constexpr int kPieces = (kSteps + 1) / 2;
    uint4 row[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) row[i] = load_shared_16(from + i * 64);
    async_proxy_fence();
    barrier_release(barrier + kFree, row[kPieces - 1].w, lane);
    // An odd last step has two pieces of each row.
    const int pieces = out.piece < 2 ? kPieces : kSteps / 2;
    if (here && out.row < f.sites) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        if (i < pieces) *reinterpret_cast<uint4*>(to + i * 32) = row[i];
      }
    }
    if (f.weight == nullptr) continue;
    const uint32_t row_barriers = base + f.at.barriers + f.stages * kStageBarriers;
    barrier_wait(row_barriers + kRowTaken, turns / kOfItem & 1);
    if (out.row == 0) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        if (i < pieces) store_shared_16(base + f.at.row + channel + out.piece * 16 + i * 64, row[i]);
      }
    }
    barrier_arrive(row_barriers + kRowWritten);
  }
}

struct Instance {
  int width;
  void (*whole)(Forward);
  void (*pairs)(Forward);  // of tokens
};

constexpr Instance kInstances[] = {
    {16, far_forward_kernel<1>, far_forward_pairs_kernel<1>},
    {32, far_forward_kernel<2>, far_forward_pairs_kernel<2>},
    {48, far_forward_kernel<3>, far_forward_pairs_kernel<3>},
    {64, far_forward_kernel<4>, far_forward_pairs_kernel<4>},
    {80, far_forward_kernel<5>, far_forward_pairs_kernel<5>},
    {96, far_forward_kernel<6>, far_forward_pairs_kernel<6>},
    {112, far_forward_kernel<7>, far_forward_pairs_kernel<7>},
    {128, far_forward_kernel<8>, far_forward_pairs_kernel<8>},
    {144, far_forward_kernel<9>, far_forward_pairs_kernel<9>},
    {160, far_forward_kernel<10>, far_forward_pairs_kernel<10>},
};

}  // namespace

int far_forward_hopper(const DepthSizes& z, const FarForward& pass, void* queue) {
  if (z.tokens == 0) return cudaSuccess;
  const int width = slice_width(z);
  if (width == 0 || pass.sites > kMostFar) return cudaErrorInvalidValue;
  Forward f{
      .sources = static_cast<const Value*>(pass.sources),
      .rho = static_cast<float*>(pass.rho),
      .keys = static_cast<const float*>(pass.keys),
      .mixes = static_cast<Value*>(pass.mixes),
      .lse = static_cast<float*>(pass.lse),
      .weight = static_cast<const Value*>(pass.norm.weight),
      .normed = static_cast<Value*>(pass.norm.output),
      .norm_rho = static_cast<float*>(pass.norm.rho),
      .row = z.values(),
      .tokens = static_cast<int>(z.tokens),
      .count = static_cast<int>(pass.count),
      .sites = static_cast<int>(pass.sites),
      .newest = pass.newest,
      .eps = static_cast<float>(z.eps),
      .width = static_cast<int>(z.width),
      .heads = static_cast<int>(z.heads),
      .slices = static_cast<int>(z.width / width),
      .together = static_cast<int>(z.channels() / width),
      .per_block = std::max(1, static_cast<int>(8 * width / z.width)),
      .warps = 0,
      .stages = 2,
      .per_channel = 1.0f / static_cast<float>(z.width),
      .at = {},
  };
  f.warps = f.slices * f.per_block;
  // Two blocks of eight warps hide one another's waits better than one of sixteen.
  bool two = f.warps <= 8;
  f.per_block *= 2;
  const bool pairs = two && f.count <= kPairRows && layout_of(f).bytes <= kHalfShared;
  if (!pairs) f.per_block /= 2;
  two = two && layout_of(f).bytes <= kHalfShared;
  f.stages = kMostStages;
  while (f.stages > 2 && layout_of(f).bytes > (two ? kHalfShared : kMostShared)) --f.stages;
  f.at = layout_of(f);

  const Instance& instance = kInstances[width / 16 - 1];
  const auto kernel = pairs ? instance.pairs : instance.whole;
  int device = 0, units = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kMostShared);
  }
  if (status != cudaSuccess) return status;
  const int items = (f.tokens - 1) / f.per_block + 1;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(std::min(items, two ? 2 * units : units)));
  launch.blockDim = dim3(static_cast<unsigned>(f.warps + 2) * 32);
  launch.dynamicSmemBytes = static_cast<size_t>(f.at.bytes);
  launch.stream = static_cast<cudaStream_t>(queue);
  launch.attrs = &early;
  launch.numAttrs = 1;
  return cudaLaunchKernelEx(&launch, kernel, f);
}

}  // namespace mhar::kernels::hopper
