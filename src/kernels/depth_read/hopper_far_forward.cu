// Far forward, Eq. 37, with Eq. 9 of the first site. Per token and head, 16 sources by 8 sites: logits = S W^T and mix
// = S^T exp(logits) are tensor-core products with the depth on the side of 16, so nothing is padded up to eight sites,
// and the softmax runs down the lanes. Persistent blocks: one warp brings tiles of 16 sources, the others own a slice
// of channels of a token each; slices of one head add up their logits in shared memory.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/depth_read/hopper.h"
#include "kernels/depth_read/hopper_rows.h"

namespace mhar::kernels::hopper {
namespace {

using Value = __nv_bfloat16;
constexpr int kTile = 16;          // sources of a tile
constexpr int kMostStages = 4;     // more do not make it faster
constexpr int kMostThreads = 640;  // for 96 registers: of two blocks of 9 warps a scheduler may get five

// Byte offsets in shared memory. A tile's rows are an odd number of 16 bytes apart: ldmatrix meets no bank twice.
struct Layout {
  int pitch, stage, low_keys, exchange, zero, sums, barriers, bytes;
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
  int per_block;  // tokens
  int stages;
  Layout at;
};

Layout layout_of(const Forward& f) {
  const int warps = f.slices * f.per_block;
  Layout at{};
  at.pitch = f.per_block * f.width * 2 + 16;
  at.stage = kTile * at.pitch + kTile * f.per_block * 4;  // then rho
  at.low_keys = f.stages * at.stage;
  at.exchange = at.low_keys + f.width * kMostFar * 2;
  at.zero = at.exchange + 2 * warps * kSlotBytes;
  at.sums = at.zero + f.width / f.slices * 2;
  at.barriers = at.sums + 4 * warps * 4;
  at.bytes = at.barriers + f.stages * 16;
  return at;
}

__device__ void bring_tiles(const Forward& f, uint32_t base, int lane) {
  int stage = 0;
  uint32_t phase = 1;
  for (int first = blockIdx.x * f.per_block; first < f.tokens; first += gridDim.x * f.per_block) {
    const int tokens = min(f.tokens - first, f.per_block);
    const uint32_t row_bytes = tokens * f.width * 2;
    const Value* from = f.sources + int64_t{first} * f.width;
    for (int source = 0; source < f.count; source += kTile, from += kTile * f.row) {
      const int rows = min(f.count - source, kTile);
      const uint32_t barrier = base + f.at.barriers + stage * 16, to = base + stage * f.at.stage;
      barrier_wait(barrier + 8, phase);
      if (elect()) {
        barrier_expect(barrier, rows * row_bytes);
        for (int r = 0; r < rows; ++r) bulk_load(to + r * f.at.pitch, from + r * f.row, row_bytes, barrier);
      }
      __syncwarp();
      for (int i = lane; i < rows * f.per_block; i += 32) {
        const int row = i / f.per_block, token = i % f.per_block;
        if (token < tokens && !(f.newest && source + row == f.count - 1)) {
          async_load<4>(to + kTile * f.at.pitch + i * 4, f.rho + int64_t{source + row} * f.tokens + first + token);
        }
      }
      async_arrive(barrier);
      if (++stage == f.stages) stage = 0, phase ^= 1;
    }
  }
  async_wait_all();
}

// Sum over the warps of a token, each of which put its own part `step` floats from the last one's.
__device__ __forceinline__ float sum_of_slices(uint32_t sums, int slices) {
  float sum = 0.0f;
  for (int s = 0; s < slices; ++s) sum += load_shared(sums + s * 4);
  return sum;
}

template <int kSteps>  // of 16 channels in a slice
__global__ void __launch_bounds__(kMostThreads) far_forward_kernel(const Forward f) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kSlice = kSteps * 16;
  const uint32_t base = shared_address(shared);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = f.slices * f.per_block;
  if (threadIdx.x == 0) {
    for (int s = 0; s < f.stages; ++s) {
      barrier_init(base + f.at.barriers + s * 16, 33);  // full: the announcement, and each lane's statistics
      barrier_init(base + f.at.barriers + s * 16 + 8, warps);
    }
  }
  if (threadIdx.x < kSlice / 2) store_shared(base + f.at.zero + threadIdx.x * 4, 0u);
  barrier_init_fence();
  __syncthreads();
  wait_for_previous_kernel();
  allow_next_kernel();
  if (warp == warps) {
    bring_tiles(f, base, lane);
    return;
  }

  const int token = warp / f.slices, slice = warp % f.slices, g = lane >> 2, t = lane & 3;
  // A key is two bf16 terms: the first stays in registers, the rest in shared memory in the order of the fragments.
  const uint32_t low = base + f.at.low_keys + slice * kSteps * 256 + lane * 8;
  uint32_t high[kSteps][2];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    uint2 rest = make_uint2(0, 0);
    high[k][0] = high[k][1] = 0;
    if (g < f.sites) {
      const float* key = f.keys + int64_t{g} * f.width + slice * kSlice + k * 16 + 2 * t;
      const float2 x = *reinterpret_cast<const float2*>(key), y = *reinterpret_cast<const float2*>(key + 8);
      high[k][0] = pack(x.x, x.y);
      high[k][1] = pack(y.x, y.y);
      rest.x = pack(x.x - first_of(high[k][0]), x.y - second_of(high[k][0]));
      rest.y = pack(y.x - first_of(high[k][1]), y.y - second_of(high[k][1]));
    }
    if (token == 0) store_shared_8(low + k * 256, rest);
  }
  named_barrier(15, warps * 32);

  // Rows of a lane for ldmatrix: as they are for the logits, turned for the mix. Rows past the last source are zero.
  const int row1 = lane & 15, row2 = (lane & 7) + (lane >> 4) * 8;
  const uint32_t side1 = (lane >> 4) * 16, side2 = (lane >> 3 & 1) * 16;
  const uint32_t channel = (token * f.width + slice * kSlice) * 2;
  int stage = 0, turn = 0, item = 0;
  uint32_t phase = 0;
  for (int first = blockIdx.x * f.per_block; first < f.tokens; first += gridDim.x * f.per_block, item ^= 1) {
    const int p = first + token;
    float mix[kSteps][4];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) mix[k][0] = mix[k][1] = mix[k][2] = mix[k][3] = 0.0f;
    float most0 = -INFINITY, most1 = -INFINITY, sum0 = 0.0f, sum1 = 0.0f;  // sites 2t, 2t + 1; in powers of two
    const uint32_t token_sums = base + f.at.sums + (item * warps + token * f.slices) * 4;
    for (int source = 0; source < f.count; source += kTile) {
      const int rows = min(f.count - source, kTile);
      const bool newest = f.newest && source + kTile >= f.count;
      barrier_wait(base + f.at.barriers + stage * 16, phase);
      const uint32_t tile = base + stage * f.at.stage;
      const uint32_t rho_at = tile + kTile * f.at.pitch + (g * f.per_block + token) * 4;
      float rho0 = load_shared(rho_at), rho1 = load_shared(rho_at + 8 * f.per_block * 4);
      float logit[4] = {0, 0, 0, 0}, rest[4] = {0, 0, 0, 0};
      const uint32_t a1 = (row1 < rows ? tile + row1 * f.at.pitch + channel : base + f.at.zero) + side1;
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
      if (newest) {
        uint4 part = make_uint4(0, 0, 0, 0);
        if (lane < kSlice / 8) part = load_shared_16(tile + (rows - 1) * f.at.pitch + channel + lane * 16);
        const float squares = sum_over_lanes<32>(sum_of_squares(part));
        if (lane == 0) store_shared(token_sums + slice * 4, squares);
      }
      const uint32_t mine = base + f.at.exchange + (turn * warps + warp) * kSlotBytes + lane * 16;
      if (f.together > 1) {
        store_shared_16(mine, make_uint4(__float_as_uint(logit[0]), __float_as_uint(logit[1]),
                                         __float_as_uint(logit[2]), __float_as_uint(logit[3])));
      }
      if (newest || f.together > 1) named_barrier(1 + token, f.slices * 32);
      if (f.together > 1) {
        logit[0] = logit[1] = logit[2] = logit[3] = 0.0f;
        uint32_t slot = mine - slice % f.together * kSlotBytes;
        for (int s = 0; s < f.together; ++s, slot += kSlotBytes) {
          const uint4 part = load_shared_16(slot);
          logit[0] += __uint_as_float(part.x), logit[1] += __uint_as_float(part.y);
          logit[2] += __uint_as_float(part.z), logit[3] += __uint_as_float(part.w);
        }
        // The slots alternate: whoever is at the next tile's barrier has read this tile's parts.
        turn ^= 1;
      }
      if (newest) {
        const float rho = rsqrtf(sum_of_slices(token_sums, f.slices) / static_cast<float>(f.width) + f.eps);
        if (g == rows - 1) rho0 = rho;
        if (g + 8 == rows - 1) rho1 = rho;
        if (slice == 0 && lane == 0 && p < f.tokens) f.rho[int64_t{f.count - 1} * f.tokens + p] = rho;
      }

      rho0 *= kLog2OfE, rho1 *= kLog2OfE;
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
      const float keep0 = exp2_fast(most0 - top0), keep1 = exp2_fast(most1 - top1);
      most0 = top0, most1 = top1;
      const float p0 = exp2_fast(logit[0] - top0), p1 = exp2_fast(logit[1] - top1);
      const float p2 = exp2_fast(logit[2] - top0), p3 = exp2_fast(logit[3] - top1);
      sum0 = sum0 * keep0 + (p0 + p2), sum1 = sum1 * keep1 + (p1 + p3);
      const uint32_t b0 = transposed(pack(p0, p1)), b1 = transposed(pack(p2, p3));
      if (source > 0) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) mix[k][0] *= keep0, mix[k][1] *= keep1, mix[k][2] *= keep0, mix[k][3] *= keep1;
      }
      const uint32_t a2 = (row2 < rows ? tile + row2 * f.at.pitch + channel : base + f.at.zero) + side2;
      uint32_t last = 0;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        uint32_t a[4];
        load_matrices_transposed(a, a2 + k * 32);
        last = a[3];
        multiply(mix[k], a, b0, b1);
      }
      barrier_release(base + f.at.barriers + stage * 16 + 8, last, lane);
      if (++stage == f.stages) stage = 0, phase ^= 1;
    }

#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      sum0 += __shfl_xor_sync(~0u, sum0, step);
      sum1 += __shfl_xor_sync(~0u, sum1, step);
    }
    const int64_t offset = int64_t{p} * f.width + slice * kSlice;
    const RowTarget target{f.mixes + offset, f.row, p < f.tokens ? f.sites : 0};
    const Value* only = f.count == 1 ? f.sources + offset : nullptr;
    // The slot of the next turn: nobody reads it before this warp's next tile.
    const uint4 mixed = write_rows<kSteps>(
        mix, 1.0f / sum0, 1.0f / sum1, base + f.at.exchange + (turn * warps + warp) * kSlotBytes, target, only, lane);
    if (g == 0 && slice % f.together == 0 && p < f.tokens) {
      float* lse = f.lse + int64_t{p} * f.heads + slice / f.together;
      const int64_t pitch = int64_t{f.tokens} * f.heads;
      if (2 * t < f.sites) lse[2 * t * pitch] = (most0 + __log2f(sum0)) * kLnOf2;
      if (2 * t + 1 < f.sites) lse[(2 * t + 1) * pitch] = (most1 + __log2f(sum1)) * kLnOf2;
    }
    if (f.weight == nullptr) continue;
    const float squares = sum_over_lanes<32>(sum_of_squares(mixed));
    if (lane == 0) store_shared(token_sums + (2 * warps + slice) * 4, squares);
    named_barrier(1 + token, f.slices * 32);
    const float rho = rsqrtf(sum_of_slices(token_sums + 2 * warps * 4, f.slices) / static_cast<float>(f.width) + f.eps);
    if (p >= f.tokens) continue;
    if (slice == 0 && lane == 0) f.norm_rho[p] = rho;
    if (lane < kSlice / 8) {
      const uint4 weight = *reinterpret_cast<const uint4*>(f.weight + slice * kSlice + lane * 8);
      *reinterpret_cast<uint4*>(f.normed + offset + lane * 8) = normed(mixed, rho, weight);
    }
  }
}

struct Instance {
  int width;
  void (*kernel)(Forward);
};

constexpr Instance kInstances[] = {
    {16, far_forward_kernel<1>},   {32, far_forward_kernel<2>},  {48, far_forward_kernel<3>},
    {64, far_forward_kernel<4>},   {80, far_forward_kernel<5>},  {96, far_forward_kernel<6>},
    {112, far_forward_kernel<7>},  {128, far_forward_kernel<8>}, {144, far_forward_kernel<9>},
    {160, far_forward_kernel<10>},
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
      .stages = 2,
      .at = {},
  };
  const int warps = f.slices * f.per_block;
  // Two blocks of eight warps hide one another's barriers better than one of sixteen.
  const bool two = warps <= 8 && layout_of(f).bytes <= kHalfShared;
  f.stages = kMostStages;
  while (f.stages > 2 && layout_of(f).bytes > (two ? kHalfShared : kMostShared)) --f.stages;
  f.at = layout_of(f);

  const Instance& instance = kInstances[width / 16 - 1];
  int device = 0, units = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(reinterpret_cast<const void*>(instance.kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
  }
  if (status != cudaSuccess) return status;
  const int items = (f.tokens - 1) / f.per_block + 1;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(std::min(items, two ? 2 * units : units)));
  launch.blockDim = dim3(static_cast<unsigned>(warps + 1) * 32);
  launch.dynamicSmemBytes = static_cast<size_t>(f.at.bytes);
  launch.stream = static_cast<cudaStream_t>(queue);
  launch.attrs = &early;
  launch.numAttrs = 1;
  return cudaLaunchKernelEx(&launch, instance.kernel, f);
}

}  // namespace mhar::kernels::hopper
