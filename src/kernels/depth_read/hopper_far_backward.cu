// Far backward, Eq. 39. Per token and head, 16 sites by 8 sources: a = W S^T and dp = dO S^T, then the gradient,
// turned, G^T = dO^T pi + W^T (da rho), all on tensor cores; the chunk's sources stay in registers. Persistent blocks:
// four warps bring 16 sites at a time, eight others own a slice of channels of a token each. The keys of the block's
// channels stay in shared memory, or come along with every tile where there are too many sites. Slices of one head add
// up their dot products in shared memory, and where a head is wider than a block, across the cluster of blocks that
// share it.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/depth_read/hopper.h"
#include "kernels/depth_read/hopper_far_backward.h"
#include "kernels/depth_read/hopper_head_sum.h"
#include "kernels/depth_read/hopper_rows.h"
#include "kernels/depth_read/hopper_scratch.h"

namespace mhar::kernels::hopper {
namespace {

using namespace far_backward_pass;

template <int kBytes>
__device__ __forceinline__ void bring_statistics(const Backward& b, uint32_t to, int64_t from, int rows, int tokens,
                                                 int lane) {
  constexpr int kFloats = kBytes / 4;
  const int token_pieces = b.block_heads() / kFloats, row_pieces = b.per_block * token_pieces;
  for (int i = lane; i < rows * row_pieces; i += 32) {
    const int row = i / row_pieces, token = i % row_pieces / token_pieces, piece = i % token_pieces;
    if (token >= tokens) continue;
    const int64_t at = from + row * b.statistics + int64_t{token} * b.heads + piece * kFloats;
    async_load<kBytes>(to + i * kBytes, b.lse + at);
    async_load<kBytes>(to + kTile * row_pieces * kBytes + i * kBytes, b.deltas + at);
  }
}

// Tile -1 is the chunk's sources with their rho. Each of the bringers sends for every kBringers-th row, and the last
// one for the statistics.
__device__ void bring_tiles(const Backward& b, uint32_t base, int group, int start, int step, int bringer, int lane) {
  const int width = b.block * b.slice, heads = b.block_heads();
  const bool whole_row = width == b.width;
  int stage = 0;
  uint32_t phase = 1;
  for (int first = start; first < b.tokens; first += step) {
    const int tokens = min(b.tokens - first, b.per_block);
    const int copies = whole_row ? 1 : tokens;
    const uint32_t bytes = (whole_row ? tokens : 1) * width * 2;
    const int64_t corner = int64_t{first} * b.width + group * width;
    for (int site = -kTile; site < b.sites; site += kTile) {
      const bool sources = site < 0;
      const int rows = sources ? b.count : min(b.sites - site, kTile);
      const Value* from = (sources ? b.sources : b.mix_gradients + site * b.row) + corner;
      const uint32_t barrier = base + b.at.barriers + stage * 16, to = base + stage * b.at.stage;
      const bool keys = b.streamed && !sources;
      barrier_wait(barrier + 8, phase);
      const int mine = (rows - bringer + kBringers - 1) / kBringers;
      if (elect()) {
        barrier_expect(barrier, mine * (copies * bytes + (keys ? width * 4 : 0)));
        const Value* row = from + bringer * b.row;
        uint32_t place = to + bringer * b.at.pitch;
        for (int r = bringer; r < rows; r += kBringers, row += kBringers * b.row, place += kBringers * b.at.pitch) {
          const Value* token = row;
          uint32_t at = place;
#pragma unroll 4
          for (int c = 0; c < copies; ++c, token += b.width, at += bytes) bulk_load(at, token, bytes, barrier);
        }
        if (keys) {
          const Value* high = b.split_keys + int64_t{site} * b.width + group * width;
          const Value* low = high + int64_t{b.sites} * b.width;
          const uint32_t key_to = to + b.at.stage_keys;
          for (int r = bringer; r < rows; r += kBringers) {
            bulk_load(key_to + r * b.at.key_pitch, high + int64_t{r} * b.width, width * 2, barrier);
            bulk_load(key_to + (kTile + r) * b.at.key_pitch, low + int64_t{r} * b.width, width * 2, barrier);
          }
        }
      }
      __syncwarp();
      if (bringer < kBringers - 1) {
        if (++stage == b.stages) stage = 0, phase ^= 1;
        continue;
      }
      if (sources) {
        for (int i = lane; i < b.count * b.per_block; i += 32) {
          const int row = i / b.per_block, token = i % b.per_block;
          if (token < tokens) {
            async_load<4>(to + b.at.statistics + i * 4, b.rho + int64_t{row} * b.tokens + first + token);
          }
        }
      } else {
        const int64_t at = site * b.statistics + int64_t{first} * b.heads + group * b.block / b.together;
        if (heads % 4 == 0) {
          bring_statistics<16>(b, to + b.at.statistics, at, rows, tokens, lane);
        } else if (heads % 2 == 0) {
          bring_statistics<8>(b, to + b.at.statistics, at, rows, tokens, lane);
        } else {
          bring_statistics<4>(b, to + b.at.statistics, at, rows, tokens, lane);
        }
      }
      async_arrive(barrier);
      if (++stage == b.stages) stage = 0, phase ^= 1;
    }
  }
  async_wait_all();
}

// The two bf16 terms of four channels of a key.
__device__ __forceinline__ void split_key(const float4& key, uint2& high, uint2& low) {
  high = make_uint2(pack(key.x, key.y), pack(key.z, key.w));
  low = make_uint2(pack(key.x - first_of(high.x), key.y - second_of(high.x)),
                   pack(key.z - first_of(high.y), key.w - second_of(high.y)));
}

template <int kSteps>  // of 16 channels in a slice
__device__ __forceinline__ void take_tiles(const Backward& b, uint32_t base, int group, int start, int step) {
  constexpr int kSlice = kSteps * 16;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane >> 2, t = lane & 3, token = warp / b.block, slice = warp % b.block, heads = b.block_heads();
  const int head = (group * b.block + slice) / b.together, block_head = slice / b.together;
  const bool leads = (group * b.block + slice) % b.together == 0;
  const uint32_t zero = base + b.at.zero;
  HeadSum head_sum{};
  head_sum.local = min(b.together, b.block);
  head_sum.slice = slice % head_sum.local, head_sum.token = token, head_sum.lane = lane;
  head_sum.mine = base + b.at.slots + warp * b.at.slot;
  head_sum.slots = head_sum.mine - head_sum.slice * b.at.slot;
  head_sum.received = base + b.at.received + token * b.cluster * kDotBytes;
  head_sum.barriers = base + b.at.barriers + b.stages * 16 + token * 8;

  // Rows of a lane for ldmatrix: as they are for dot products, turned for the gradient. Rows past the last are zero.
  const int row1 = lane & 15, row2 = (lane & 7) + (lane >> 4) * 8;
  const uint32_t side1 = (lane >> 4) * 16, side2 = (lane >> 3 & 1) * 16;
  const uint32_t channel = (token * b.block + slice) * kSlice * 2, key_channel = slice * kSlice * 2;
  int stage = 0;
  uint32_t phase = 0;
  for (int first = start; first < b.tokens; first += step) {
    const int p = first + token;
    uint32_t source[kSteps][2];
    barrier_wait(base + b.at.barriers + stage * 16, phase);
    const uint32_t rho_at = base + stage * b.at.stage + b.at.statistics + (2 * t * b.per_block + token) * 4;
    float rho0 = load_shared(rho_at), rho1 = load_shared(rho_at + b.per_block * 4);
    const uint32_t loaded = __float_as_uint(rho0) ^ __float_as_uint(rho1);
    if (2 * t >= b.count) rho0 = 0.0f;
    if (2 * t + 1 >= b.count) rho1 = 0.0f;
    {
      const int row = lane & 7;
      const uint32_t tile = base + stage * b.at.stage + row * b.at.pitch + channel;
      const uint32_t from = (row < b.count ? tile : zero) + (lane >> 3) % (kSteps == 1 ? 2 : 4) * 16;
#pragma unroll
      for (int k = 0; k < kSteps; k += 2) {
        uint32_t f[4];  // of two steps; the last one of an odd number reads its own half twice
        const bool odd = k + 1 == kSteps;
        load_matrices(f, (odd ? from - (lane >> 4) * (kSteps == 1 ? 0 : 32) : from) + k * 32);
        source[k][0] = f[0], source[k][1] = f[1];
        if (!odd) source[k + 1 < kSteps ? k + 1 : k][0] = f[2], source[k + 1 < kSteps ? k + 1 : k][1] = f[3];
      }
    }
    barrier_release(base + b.at.barriers + stage * 16 + 8, source[kSteps - 1][1] ^ loaded, lane);
    if (++stage == b.stages) stage = 0, phase ^= 1;

    float sum[kSteps][4];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) sum[k][0] = sum[k][1] = sum[k][2] = sum[k][3] = 0.0f;
    float through0 = 0.0f, through1 = 0.0f;
    uint32_t* pairs = reinterpret_cast<uint32_t*>(b.pairs + ((int64_t{p} * b.heads + head) * b.rows + g) * 8) + t;
    for (int site = 0; site < b.sites; site += kTile, pairs += kTile * 4) {
      const int rows = min(b.sites - site, kTile);
      const uint32_t full = base + b.at.barriers + stage * 16, tile = base + stage * b.at.stage;
      const bool resident = !b.streamed;
      if (!resident) barrier_wait(full, phase);
      const uint32_t keys =
          (resident ? base + b.at.keys + site * b.at.key_pitch : tile + b.at.stage_keys) + key_channel;
      const uint32_t to_low = (resident ? b.sites : kTile) * b.at.key_pitch;
      float a[4] = {0, 0, 0, 0}, rest[4] = {0, 0, 0, 0}, dp[4] = {0, 0, 0, 0}, dp_odd[4] = {0, 0, 0, 0};
      {
        const uint32_t high = (row1 < rows ? keys + row1 * b.at.key_pitch : zero) + side1;
        const uint32_t low = (row1 < rows ? keys + row1 * b.at.key_pitch + to_low : zero) + side1;
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          uint32_t f[4];
          load_matrices(f, high + k * 32);
          multiply(a, f, source[k][0], source[k][1]);
          load_matrices(f, low + k * 32);
          multiply(rest, f, source[k][0], source[k][1]);
        }
      }
      if (resident) barrier_wait(full, phase);
      const int statistic = (g * b.per_block + token) * heads + block_head, eight = 8 * b.per_block * heads;
      const uint32_t lse_at = tile + b.at.statistics + statistic * 4;
      const float lse0 = load_shared(lse_at), lse1 = load_shared(lse_at + eight * 4);
      float delta0 = load_shared(lse_at + 2 * eight * 4), delta1 = load_shared(lse_at + 3 * eight * 4);
      if (g >= rows) delta0 = 0.0f;
      if (g + 8 >= rows) delta1 = 0.0f;
      {
        const uint32_t from = (row1 < rows ? tile + row1 * b.at.pitch + channel : zero) + side1;
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          uint32_t f[4];
          load_matrices(f, from + k * 32);
          multiply(k % 2 == 0 ? dp : dp_odd, f, source[k][0], source[k][1]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] += rest[i], dp[i] += dp_odd[i];
      if (b.together > 1) sum_over_head(b, head_sum, a, dp);

      float pi[4], da[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i] *= i % 2 == 0 ? rho0 : rho1;
        pi[i] = exp2_fast(fminf(a[i] - (i < 2 ? lse0 : lse1), 0.0f) * kLog2OfE);
        if ((i < 2 ? g : g + 8) >= rows) pi[i] = 0.0f;
        da[i] = pi[i] * (dp[i] - (i < 2 ? delta0 : delta1));
      }
      through0 += da[0] * a[0] + da[2] * a[2], through1 += da[1] * a[1] + da[3] * a[3];
      const uint32_t u0 = pack(da[0] * rho0, da[1] * rho1), u1 = pack(da[2] * rho0, da[3] * rho1);
      if (leads && p < b.tokens) pairs[0] = u0, pairs[32] = u1;  // a warp writes 256 bytes in a row
      const uint32_t pi0 = transposed(pack(pi[0], pi[1])), pi1 = transposed(pack(pi[2], pi[3]));
      const uint32_t da0 = transposed(u0), da1 = transposed(u1);
      const uint32_t high = (row2 < rows ? keys + row2 * b.at.key_pitch : zero) + side2;
      uint32_t last = 0;
      if (!resident) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          uint32_t f[4];
          load_matrices_transposed(f, high + k * 32);
          multiply(sum[k], f, da0, da1);
        }
      }
      {
        const uint32_t from = (row2 < rows ? tile + row2 * b.at.pitch + channel : zero) + side2;
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          uint32_t f[4];
          load_matrices_transposed(f, from + k * 32);
          last = f[3];
          multiply(sum[k], f, pi0, pi1);
        }
      }
      barrier_release(full + 8, last, lane);
      if (++stage == b.stages) stage = 0, phase ^= 1;
      if (resident) {  // after the slot is free
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          uint32_t f[4];
          load_matrices_transposed(f, high + k * 32);
          multiply(sum[k], f, da0, da1);
        }
      }
    }

#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) {
      through0 += __shfl_xor_sync(~0u, through0, lanes);
      through1 += __shfl_xor_sync(~0u, through1, lanes);
    }
    if (g == 0 && leads && p < b.tokens) {
      float* through = b.through_rho + int64_t{p} * b.heads + head;
      if (2 * t < b.count) through[2 * t * b.statistics] = through0;
      if (2 * t + 1 < b.count) through[(2 * t + 1) * b.statistics] = through1;
    }
    // The slot of the next turn: nobody reads it before this warp's next tile.
    const uint32_t slot = head_sum.mine + (b.together > 1 ? head_sum.turn * kWarps * kDotBytes : 0);
    const int64_t offset = int64_t{p} * b.width + (group * b.block + slice) * kSlice;
    write_rows<kSteps>(sum, 1.0f, 1.0f, slot, {b.partials + offset, b.row, p < b.tokens ? b.count : 0}, nullptr, lane);
  }
}

template <int kSteps>
__global__ void __launch_bounds__((kWarps + kBringers) * 32, 1) far_backward_kernel(const Backward b) {
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t base = shared_address(shared);
  const int warp = warp_of_block();
  const int group = static_cast<int>(blockIdx.x) % b.groups;
  const int start = static_cast<int>(blockIdx.x) / b.groups * b.per_block;
  const int step = static_cast<int>(gridDim.x) / b.groups * b.per_block;
  if (threadIdx.x == 0) {
    for (int s = 0; s < b.stages; ++s) {
      // Full: the bringers' announcements, and each lane's statistics.
      barrier_init(base + b.at.barriers + s * 16, kBringers + 32);
      barrier_init(base + b.at.barriers + s * 16 + 8, kWarps);
    }
    for (int i = 0; i < 2 * b.per_block; ++i) barrier_init(base + b.at.barriers + b.stages * 16 + i * 8, 1);
  }
  if (threadIdx.x < kSteps * 8) store_shared(base + b.at.zero + threadIdx.x * 4, 0u);
  barrier_init_fence();
  if (!b.streamed) {
    const int width = b.block * b.slice, pieces = width / 4;
    const float* keys = b.keys + group * width;
    for (int i = static_cast<int>(threadIdx.x); i < b.sites * pieces; i += (kWarps + kBringers) * 32) {
      const int row = i / pieces, piece = i % pieces;
      uint2 high, low;
      split_key(*reinterpret_cast<const float4*>(keys + int64_t{row} * b.width + piece * 4), high, low);
      const uint32_t to = base + b.at.keys + row * b.at.key_pitch + piece * 8;
      store_shared_8(to, high);
      store_shared_8(to + b.sites * b.at.key_pitch, low);
    }
  }
  if (b.cluster > 1) cluster_sync();
  __syncthreads();
  if (warp >= kWarps) {
    bring_tiles(b, base, group, start, step, warp - kWarps, static_cast<int>(threadIdx.x) % 32);
  } else {
    take_tiles<kSteps>(b, base, group, start, step);
  }
  __syncwarp();
  if (b.cluster > 1) cluster_sync();  // no block ends while others may send to it
}

__global__ void split_keys_kernel(const float* keys, Value* split, int64_t pieces) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= pieces) return;
  uint2 high, low;
  split_key(reinterpret_cast<const float4*>(keys)[i], high, low);
  reinterpret_cast<uint2*>(split)[i] = high;
  reinterpret_cast<uint2*>(split)[pieces + i] = low;
}

struct Instance {
  int width;
  void (*kernel)(Backward);
};

constexpr Instance kInstances[] = {
    {16, far_backward_kernel<1>},   {32, far_backward_kernel<2>},  {48, far_backward_kernel<3>},
    {64, far_backward_kernel<4>},   {80, far_backward_kernel<5>},  {96, far_backward_kernel<6>},
    {112, far_backward_kernel<7>},  {128, far_backward_kernel<8>}, {144, far_backward_kernel<9>},
    {160, far_backward_kernel<10>},
};

}  // namespace

bool far_backward_takes(const DepthSizes& z) {
  Backward b{};
  b.width = static_cast<int>(z.width);
  b.slice = slice_width(z);
  if (b.slice == 0) return false;
  b.together = static_cast<int>(z.channels()) / b.slice;
  b.sites = 4096;  // surely streamed, which takes any number
  return choose(b);
}

int far_backward_hopper(const DepthSizes& z, const BackwardChunk& chunk, const FarBackward& pass, void* queue) {
  if (z.tokens == 0) return cudaSuccess;
  const int width = slice_width(z);
  if (width == 0 || pass.column != 0 || pass.count > kMostFar) return cudaErrorInvalidValue;
  const int64_t sites = chunk.sites - chunk.far;
  const Scratch scratch = scratch_of(z, chunk.sites);
  char* const scratch_base = static_cast<char*>(chunk.scratch);
  Backward b{};
  b.sources = static_cast<const Value*>(pass.sources);
  b.rho = static_cast<const float*>(pass.rho);
  b.keys = static_cast<const float*>(pass.keys);
  b.mix_gradients = static_cast<const Value*>(pass.mix_gradients);
  b.lse = static_cast<const float*>(pass.lse);
  b.deltas = static_cast<const float*>(pass.deltas);
  b.partials = static_cast<Value*>(pass.partials);
  b.through_rho = static_cast<float*>(pass.through_rho);
  b.pairs = reinterpret_cast<Value*>(scratch_base + scratch.far_pairs);
  b.row = z.values();
  b.statistics = z.tokens * z.heads;
  b.tokens = static_cast<int>(z.tokens);
  b.count = static_cast<int>(pass.count);
  b.sites = static_cast<int>(sites);
  b.rows = static_cast<int>(far_rows(sites));
  b.width = static_cast<int>(z.width);
  b.heads = static_cast<int>(z.heads);
  b.slice = width;
  b.together = static_cast<int>(z.channels() / width);
  // The key gradients' sums are not there before the chunk's last pass: until then the place takes the split keys.
  Value* const split = reinterpret_cast<Value*>(scratch_base + scratch.key_sums);
  b.split_keys = split;
  if (!choose(b)) return cudaErrorInvalidValue;

  const cudaStream_t stream = static_cast<cudaStream_t>(queue);
  if (b.streamed) {
    const int64_t pieces = sites * z.width / 4;
    split_keys_kernel<<<static_cast<unsigned>((pieces + 255) / 256), 256, 0, stream>>>(b.keys, split, pieces);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  const Instance& instance = kInstances[width / 16 - 1];
  int device = 0, units = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(reinterpret_cast<const void*>(instance.kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
  }
  if (status != cudaSuccess) return status;
  // Not launched early under the kernel before it: in trials with early launches some results were wrong.
  cudaLaunchAttribute clusters{};
  clusters.id = cudaLaunchAttributeClusterDimension;
  clusters.val.clusterDim = {static_cast<unsigned>(b.cluster), 1, 1};
  cudaLaunchConfig_t launch{};
  launch.blockDim = dim3((kWarps + kBringers) * 32);
  launch.dynamicSmemBytes = static_cast<size_t>(b.at.bytes);
  launch.stream = stream;
  if (b.cluster > 1) {
    launch.attrs = &clusters;
    launch.numAttrs = 1;
    launch.gridDim = dim3(static_cast<unsigned>(units / b.groups * b.groups));
    int active = 0;  // clusters at a time: units come in groups that no multiple of a cluster fills
    status = cudaOccupancyMaxActiveClusters(&active, reinterpret_cast<const void*>(instance.kernel), &launch);
    if (status != cudaSuccess) return status;
    units = active * b.cluster;
  }
  const int items = (b.tokens - 1) / b.per_block + 1;
  launch.gridDim = dim3(static_cast<unsigned>(b.groups * std::clamp(units / b.groups, 1, items)));
  return cudaLaunchKernelEx(&launch, instance.kernel, b);
}

}  // namespace mhar::kernels::hopper
