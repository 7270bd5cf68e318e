// Gradients of the keys, Eq. 41, and of the norm's weights from what a backward chunk left in its scratch. dw of all
// its sites is one product: da * rho [sites, tokens x 8 sources] by the sources [tokens x 8 sources, channels], near
// and far pairs in one reading of the sources. A block takes some channels and every so many tokens; its sums are added
// to those of the other blocks in a fixed order by a second kernel.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/depth_read/hopper.h"
#include "kernels/depth_read/hopper_ptx.h"
#include "kernels/depth_read/hopper_scratch.h"

namespace mhar::kernels::hopper {
namespace {

using Value = __nv_bfloat16;
constexpr int kTokens = 8;     // of a stage
constexpr int kSources = 8;    // depth of the product is token by token, eight sources each
constexpr int kSiteTiles = 8;  // of 16 sites: 64 accumulators; more sites are segments, each of which reads the sources
constexpr int kMostStages = 6;
constexpr int kBringers = 4;    // one warp cannot send for 80 pieces a stage fast enough: 25 to 50 cycles each
constexpr int kMostRows = 256;  // pairs of a token in a stage, over the heads of a block
constexpr int kMostWarps = kWidestSlice / 16;

// Byte offsets in shared memory.
struct Layout {
  int pitch, far_pairs, near_pairs, stage, barriers, bytes;
};

struct Keys {
  const Value* sources;
  const Value* far_pairs;
  const Value* near_pairs;
  float* sums;
  int64_t row;  // elements of a source
  int tokens, first, count, far, sites, far_rows;
  int width, heads;
  int block_width;  // channels of a block: some heads, or a part of one
  int block_heads;
  int columns;       // blocks side by side
  int segment_rows;  // sites of a segment
  int stages;
  Layout at;
};

Layout layout_of(const Keys& k) {
  Layout at{};
  at.pitch = k.block_width * 2 + 16;  // an odd number of 16 bytes: ldmatrix meets no bank twice
  at.far_pairs = kTokens * kSources * at.pitch;
  at.near_pairs = at.far_pairs + kTokens * k.block_heads * k.segment_rows * 16;
  at.stage = at.near_pairs + kSources * k.block_heads * kTokens * 16;
  at.barriers = k.stages * at.stage;
  at.bytes = at.barriers + k.stages * 16;
  return at;
}

// Each of the bringers takes every kBringers-th source and token.
__device__ __forceinline__ void bring_stages(const Keys& k, uint32_t base, int bringer, int first_head, int64_t channel,
                                             int site, int rows) {
  const uint32_t source_bytes = k.block_width * 2, pair_bytes = rows * 16;
  const bool near = blockIdx.y == 0;
  int stage = 0;
  uint32_t phase = 1;
  const int step = static_cast<int>(gridDim.x) / k.columns * kTokens;
  for (int p = static_cast<int>(blockIdx.x) / k.columns * kTokens; p < k.tokens; p += step) {
    const int tokens = min(k.tokens - p, kTokens);
    const uint32_t barrier = base + k.at.barriers + stage * 16, to = base + stage * k.at.stage;
    barrier_wait(barrier + 8, phase);
    const int my_sources = (k.count - bringer + kBringers - 1) / kBringers;
    const int my_tokens = (tokens - bringer + kBringers - 1) / kBringers;
    barrier_expect(barrier, tokens * my_sources * (source_bytes + (near ? k.block_heads * 16 : 0)) +
                                my_tokens * k.block_heads * pair_bytes);
    for (int c = bringer; c < k.count; c += kBringers) {
      const Value* from = k.sources + c * k.row + int64_t{p} * k.width + channel;
      uint32_t place = to + c * k.at.pitch;
      if (tokens == kTokens) {
#pragma unroll
        for (int token = 0; token < kTokens; ++token, from += k.width, place += kSources * k.at.pitch) {
          bulk_load(place, from, source_bytes, barrier);
        }
      } else {
        for (int token = 0; token < tokens; ++token, from += k.width, place += kSources * k.at.pitch) {
          bulk_load(place, from, source_bytes, barrier);
        }
      }
      if (near) {
        for (int h = 0; h < k.block_heads; ++h) {
          bulk_load(to + k.at.near_pairs + (c * k.block_heads + h) * kTokens * 16,
                    k.near_pairs + ((int64_t{c} * k.heads + first_head + h) * k.tokens + p) * 8, tokens * 16, barrier);
        }
      }
    }
    if (rows > 0) {
      for (int token = bringer; token < tokens; token += kBringers) {
        for (int h = 0; h < k.block_heads; ++h) {
          const int64_t from = ((int64_t{p + token} * k.heads + first_head + h) * k.far_rows + site) * 8;
          bulk_load(to + k.at.far_pairs + (token * k.block_heads + h) * k.segment_rows * 16, k.far_pairs + from,
                    pair_bytes, barrier);
        }
      }
    }
    if (++stage == k.stages) stage = 0, phase ^= 1;
  }
}

// Two bf16 of one row of the near product: sites down, sources across. Site row g reads source c if g >= c.
__device__ __forceinline__ uint32_t near_pair(const Keys& k, const unsigned char* pairs, int g, int c) {
  uint32_t value = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i, ++c) {
    if (c < k.count && g >= c && g < k.far - k.first) {
      const uint32_t half = *reinterpret_cast<const uint16_t*>(pairs + c * k.block_heads * kTokens * 16 + (g - c) * 2);
      value |= half << (16 * i);
    }
  }
  return value;
}

__global__ void __launch_bounds__((kMostWarps + kBringers) * 32, 1) key_sums_kernel(const Keys k) {
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t base = shared_address(shared);
  const int warp = warp_of_block(), lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = k.block_width / 16, threads = static_cast<int>(blockDim.x);
  const int column = static_cast<int>(blockIdx.x) % k.columns, split = static_cast<int>(blockIdx.x) / k.columns;
  const int first_head = static_cast<int>(int64_t{column} * k.block_width * k.heads / k.width);
  const int site = static_cast<int>(blockIdx.y) * k.segment_rows;  // of the far ones
  const int rows = min(k.segment_rows, k.far_rows - site);
  if (threadIdx.x == 0) {
    for (int s = 0; s < k.stages; ++s) {
      barrier_init(base + k.at.barriers + s * 16, kBringers);
      barrier_init(base + k.at.barriers + s * 16 + 8, warps);
    }
  }
  // Columns without a source have pairs of zero; what they are multiplied with must be a number.
  const int absent = kSources - k.count, words = k.block_width / 2;
  for (int i = static_cast<int>(threadIdx.x); i < k.stages * kTokens * absent * words; i += threads) {
    const int word = i % words, c = k.count + i / words % absent, token = i / words / absent;
    const int stage = token / kTokens;
    store_shared(base + stage * k.at.stage + (token % kTokens * kSources + c) * k.at.pitch + word * 4, 0u);
  }
  barrier_init_fence();
  __syncthreads();
  wait_for_previous_kernel();
  allow_next_kernel();
  if (warp >= warps) {
    if (elect()) bring_stages(k, base, warp - warps, first_head, int64_t{column} * k.block_width, site, rows);
    return;
  }

  const int g = lane >> 2, t = lane & 3, matrix = lane >> 3, tiles = rows / 16;
  const int head = warp * 16 * k.block_heads / k.block_width;  // of the block
  const bool near = blockIdx.y == 0;
  const uint32_t source_at = ((matrix & 1) * kSources + (lane & 7)) * k.at.pitch + warp * 32 + (matrix >> 1) * 16;
  const uint32_t pair_pitch = k.block_heads * k.segment_rows * 16;  // of a token
  const uint32_t pair_at =
      k.at.far_pairs + (matrix >> 1) * pair_pitch + head * k.segment_rows * 16 + ((matrix & 1) * 8 + (lane & 7)) * 16;
  float near_sum[2][4] = {}, far_sum[kSiteTiles][2][4] = {};
  int stage = 0;
  uint32_t phase = 0;
  const int step = static_cast<int>(gridDim.x) / k.columns * kTokens;
  for (int p = split * kTokens; p < k.tokens; p += step) {
    const int tokens = min(k.tokens - p, kTokens);
    const uint32_t at = base + stage * k.at.stage;
    const unsigned char* near_pairs = shared + stage * k.at.stage + k.at.near_pairs + head * kTokens * 16;
    barrier_wait(base + k.at.barriers + stage * 16, phase);
    uint32_t last = 0;
#pragma unroll
    for (int token = 0; token < kTokens; token += 2) {
      if (token >= tokens) break;
      const bool both = token + 1 < tokens;
      uint32_t b[4];
      load_matrices_transposed(b, at + source_at + token * kSources * k.at.pitch);
      if (!both) b[1] = b[3] = 0;
      last ^= b[3];
      if (near) {
        const uint32_t a0 = near_pair(k, near_pairs + token * 16, g, 2 * t);
        const uint32_t a2 = both ? near_pair(k, near_pairs + (token + 1) * 16, g, 2 * t) : 0;
        const uint32_t a[4] = {a0, 0, a2, 0};
        multiply(near_sum[0], a, b[0], b[1]);
        multiply(near_sum[1], a, b[2], b[3]);
        last ^= a0 ^ a2;
      }
#pragma unroll
      for (int m = 0; m < kSiteTiles; ++m) {
        if (m >= tiles) break;
        uint32_t a[4];
        load_matrices(a, at + pair_at + token * pair_pitch + m * 256);
        if (!both) a[2] = a[3] = 0;
        multiply(far_sum[m][0], a, b[0], b[1]);
        multiply(far_sum[m][1], a, b[2], b[3]);
        last ^= a[3];
      }
    }
    barrier_release(base + k.at.barriers + stage * 16 + 8, last, lane);
    if (++stage == k.stages) stage = 0, phase ^= 1;
  }

  float* sums = k.sums + int64_t{split} * k.sites * k.width + int64_t{column} * k.block_width + warp * 16 + 2 * t;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    if (near && g < k.far - k.first) {
      float* to = sums + int64_t{k.first + g} * k.width + n * 8;
      *reinterpret_cast<float2*>(to) = make_float2(near_sum[n][0], near_sum[n][1]);
    }
#pragma unroll
    for (int m = 0; m < kSiteTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = k.far + site + m * 16 + half * 8 + g;
        if (m < tiles && r < k.sites) {
          *reinterpret_cast<float2*>(sums + int64_t{r} * k.width + n * 8) =
              make_float2(far_sum[m][n][2 * half], far_sum[m][n][2 * half + 1]);
        }
      }
    }
  }
}

// Rows of fp32 sums that lie `pitch` elements apart.
struct Sums {
  const float* from;
  int64_t row, pitch;  // elements between results, and between the terms of one
  int terms;
  float* to;
  int rows, written;  // results; the first ones are written, the others added to
};

constexpr int kSumLanes = 32, kSumParts = 8;

// The order of a sum depends on the number of its terms alone.
__device__ __forceinline__ void add_sums(const Sums& s, int row, int width) {
  __shared__ float4 parts[kSumParts][kSumLanes];
  const int channel = (static_cast<int>(blockIdx.x) * kSumLanes + static_cast<int>(threadIdx.x)) * 4;
  float4 sum = make_float4(0, 0, 0, 0);
  const auto add = [&sum](const float4& x) { sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w; };
  if (channel < width) {
    const float* from = s.from + row * s.row + channel;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.y); i < s.terms; i += kSumParts) {
      add(*reinterpret_cast<const float4*>(from + i * s.pitch));
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= width) return;
  for (int i = 1; i < kSumParts; ++i) add(parts[i][threadIdx.x]);
  float4* to = reinterpret_cast<float4*>(s.to + int64_t{row} * width + channel);
  if (row >= s.written) add(*to);
  *to = sum;
}

__global__ void __launch_bounds__(kSumLanes* kSumParts) add_sums_kernel(const Sums keys, const Sums norms, int width) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = static_cast<int>(blockIdx.y);
  if (row < keys.rows) {
    add_sums(keys, row, width);
  } else {
    add_sums(norms, row - keys.rows, width);
  }
}

// Whole heads of a block, up to the widest slice together; or the part of a head that a warp of the far passes takes.
void arrange(Keys& k, int channels, int slice) {
  k.block_heads = 1;
  k.block_width = channels <= kWidestSlice ? channels : slice;
  for (int heads = 2; heads <= k.heads && heads * channels <= kWidestSlice; ++heads) {
    if (k.heads % heads == 0 && heads * k.segment_rows <= kMostRows) {
      k.block_heads = heads, k.block_width = heads * channels;
    }
  }
  k.columns = k.width / k.block_width;
}

}  // namespace

int chunk_gradients_hopper(const DepthSizes& z, const BackwardChunk& chunk, const ChunkGradients& pass, void* queue) {
  if (z.tokens == 0) return cudaSuccess;
  const int slice = slice_width(z);
  if (slice == 0 || chunk.count > kSources) return cudaErrorInvalidValue;
  const Scratch scratch = scratch_of(z, chunk.sites);
  char* const base = static_cast<char*>(chunk.scratch);
  Keys k{};
  k.sources = static_cast<const Value*>(pass.sources);
  k.far_pairs = reinterpret_cast<const Value*>(base + scratch.far_pairs);
  k.near_pairs = reinterpret_cast<const Value*>(base + scratch.near_pairs);
  k.sums = reinterpret_cast<float*>(base + scratch.key_sums);
  k.row = z.values();
  k.tokens = static_cast<int>(z.tokens);
  k.first = static_cast<int>(chunk.first);
  k.count = static_cast<int>(chunk.count);
  k.far = static_cast<int>(chunk.far);
  k.sites = static_cast<int>(chunk.sites);
  k.far_rows = static_cast<int>(far_rows(chunk.sites - chunk.far));
  k.width = static_cast<int>(z.width);
  k.heads = static_cast<int>(z.heads);
  k.segment_rows = std::min(k.far_rows, kSiteTiles * 16);
  arrange(k, static_cast<int>(z.channels()), slice);
  k.stages = kMostStages;
  while (k.stages > 2 && layout_of(k).bytes > kMostShared) --k.stages;
  k.at = layout_of(k);

  int device = 0, units = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(reinterpret_cast<const void*>(key_sums_kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
  }
  if (status != cudaSuccess) return status;
  const int segments = k.far_rows == 0 ? 1 : (k.far_rows - 1) / k.segment_rows + 1;
  const int items = (k.tokens - 1) / kTokens + 1;
  const int most = std::min(items, static_cast<int>(kKeyBlocks / z.heads));
  const int splits = std::max(1, std::min(most, units / (k.columns * segments)));
  // Both start under the kernel before them: a launch costs a tenth of what they do.
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.stream = static_cast<cudaStream_t>(queue);
  launch.attrs = &early;
  launch.numAttrs = 1;
  launch.gridDim = dim3(static_cast<unsigned>(splits * k.columns), static_cast<unsigned>(segments));
  launch.blockDim = dim3(static_cast<unsigned>(k.block_width / 16 + kBringers) * 32);
  launch.dynamicSmemBytes = static_cast<size_t>(k.at.bytes);
  status = cudaLaunchKernelEx(&launch, key_sums_kernel, k);
  if (status != cudaSuccess) return status;

  const int64_t first_row = chunk.first * z.width;
  const Sums keys{.from = k.sums + first_row,
                  .row = z.width,
                  .pitch = chunk.sites * z.width,
                  .terms = splits,
                  .to = static_cast<float*>(pass.key_gradients) + first_row,
                  .rows = static_cast<int>(chunk.sites - chunk.first),
                  .written = k.count};
  Sums norms{.from = reinterpret_cast<const float*>(base + scratch.norm_sums),
             .row = kNormBlocks * z.width,
             .pitch = z.width,
             .terms = static_cast<int>(norm_blocks(z)),
             .to = nullptr,
             .rows = static_cast<int>(pass.normed),
             .written = static_cast<int>(pass.normed)};
  if (pass.normed > 0) norms.to = static_cast<float*>(pass.norm_gradients) + first_row;
  const unsigned columns = static_cast<unsigned>((z.width / 4 - 1) / kSumLanes + 1);
  launch.gridDim = dim3(columns, static_cast<unsigned>(keys.rows + norms.rows));
  launch.blockDim = dim3(kSumLanes, kSumParts);
  launch.dynamicSmemBytes = 0;
  return cudaLaunchKernelEx(&launch, add_sums_kernel, keys, norms, k.width);
}

}  // namespace mhar::kernels::hopper
