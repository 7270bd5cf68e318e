#pragma once
// What the portable CUDA passes share. A block takes one token at a time: groups of lanes sum products over the
// channels of a head into a table in shared memory, a few threads turn the table into weights, then each thread sums
// rows over its own channels. A row comes from DRAM once and from a cache the second time. Every sum has one fixed
// order.
//
// Buffers are never read through the non-coherent path (no __restrict__, no __ldg): a block reads again what it wrote.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/depth_read/cuda_passes.h"

namespace mhar::kernels::portable {

inline constexpr int kWarps = kThreads / 32;
inline constexpr int kResident = 4;  ///< blocks per multiprocessor, which leaves a thread 128 registers

// ---- storage types

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T narrow(float x) {
  if constexpr (sizeof(T) == 4) return x;
  if constexpr (std::is_same_v<T, __half>) return __float2half_rn(x);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(x);
}

/// x as the storage type would keep it.
template <typename T>
__device__ float rounded(float x) {
  return widen(narrow<T>(x));
}

/// V elements from a 16-byte aligned address, or one from anywhere.
template <typename T, int V>
__device__ void load(const T* at, float (&x)[V]) {
  if constexpr (V == 1) {
    x[0] = widen(*at);
  } else {
    constexpr int kEach = 16 / sizeof(T);
#pragma unroll
    for (int first = 0; first < V; first += kEach) {
      alignas(16) T part[kEach];
      *reinterpret_cast<uint4*>(part) = *reinterpret_cast<const uint4*>(at + first);
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[first + i] = widen(part[i]);
    }
  }
}

/// Stores x rounded, and leaves in x what was stored.
template <typename T, int V>
__device__ void store(T* at, float (&x)[V]) {
  if constexpr (V == 1) {
    *at = narrow<T>(x[0]);
    x[0] = widen(*at);
  } else {
    constexpr int kEach = 16 / sizeof(T);
#pragma unroll
    for (int first = 0; first < V; first += kEach) {
      alignas(16) T part[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) part[i] = narrow<T>(x[first + i]), x[first + i] = widen(part[i]);
      *reinterpret_cast<uint4*>(at + first) = *reinterpret_cast<const uint4*>(part);
    }
  }
}

template <int V>
__device__ void fill(float (&x)[V], float value) {
#pragma unroll
  for (int v = 0; v < V; ++v) x[v] = value;
}

/// What a sum starts with: unlike +0, it leaves the sign of a zero alone, so that one source comes back bit for bit.
inline constexpr float kNothing = -0.0f;

template <int V>
__device__ void add_scaled(float (&sum)[V], float scale, const float (&x)[V]) {
#pragma unroll
  for (int v = 0; v < V; ++v) sum[v] = fmaf(scale, x[v], sum[v]);
}

template <int V>
__device__ float product(const float (&x)[V], const float (&y)[V]) {
  float sum = x[0] * y[0];
#pragma unroll
  for (int v = 1; v < V; ++v) sum = fmaf(x[v], y[v], sum);
  return sum;
}

// ---- rows on their way

/// Above this the rows of all resident blocks, about 528 on the largest device, would push one another out of the
/// cache.
inline constexpr int64_t kPrefetchBytes = 80 * 1024;

/// Asks for whole rows of a token before the first of them is waited for: the loops below have few loads in flight.
template <typename T, typename Row>
__device__ void prefetch_rows(int64_t width, int rows, Row row) {
  const int lines = static_cast<int>((width * sizeof(T) + 127) / 128);
  if (int64_t{lines} * rows > kPrefetchBytes / 128) return;
  for (int i = threadIdx.x; i < lines * rows; i += kThreads) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(row(i / lines) + i % lines * (128 / sizeof(T))));
  }
}

// ---- sums over a block

/// Sum over all threads, the same bits in each. `spare` holds kWarps floats.
__device__ inline float block_sum(float x, float* spare) {
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) x += __shfl_xor_sync(~0u, x, bit);
  if (threadIdx.x % 32 == 0) spare[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = spare[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) sum += spare[warp];
  __syncthreads();
  return sum;
}

/// 1 / rms of a row from the sum of its squares, Eq. 1 and 9.
__device__ inline float inverse_rms(const DepthSizes& z, float squares) {
  return 1.0f / sqrtf(squares / static_cast<float>(z.width) + static_cast<float>(z.eps));
}

// ---- sums over the channels of a head

/// How a block sums over heads: in rounds of `heads`, each head in `parts` pieces of `part` channels, each piece by a
/// group of `lanes`. The table has one row for each row of the pass (source or site): `columns` numbers for each piece,
/// and in the last place of its padding one number of the row itself.
struct Cut {
  int width, channels;  // D, K
  int all_heads;        // H
  int heads, parts, part, lanes;
  int stride;  // floats of a table row: 4 more than a multiple of 8, so that 8 rows of 4 columns hit all banks once
};

struct Round {
  int first, heads;
};

__device__ inline Round round_at(const Cut& cut, int first) { return {first, min(cut.heads, cut.all_heads - first)}; }

struct Group {
  int index, lane, lanes;
  unsigned mask;
};

__device__ inline Group group_of(const Cut& cut) {
  const int lanes = cut.lanes, within = threadIdx.x % 32 / lanes * lanes;
  return {static_cast<int>(threadIdx.x) / lanes, static_cast<int>(threadIdx.x) % lanes, lanes,
          (~0u >> (32 - lanes)) << within};
}

struct Channels {
  int begin, end;
};

/// Of piece `segment` of a round.
__device__ inline Channels channels_of(const Cut& cut, const Round& round, int segment) {
  const int head = round.first + segment / cut.parts;
  const int begin = head * cut.channels + segment % cut.parts * cut.part;
  return {begin, min(begin + cut.part, (head + 1) * cut.channels)};
}

/// Adds N numbers over a group; take(n, sum) is called once for each n. Halving what is left to add at each step takes
/// N + 1 shuffles for 8 numbers in 32 lanes instead of 40.
template <int N, typename Take>
__device__ void group_sums(const Group& group, float (&x)[N], Take take) {
  if (group.lanes >= N) {
    int index = 0;
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2) {
      const int bit = N / 2 / half;
      const bool upper = group.lane & bit;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float sent = upper ? x[i] : x[i + half], kept = upper ? x[i + half] : x[i];
        x[i] = kept + __shfl_xor_sync(group.mask, sent, bit);
      }
      if (upper) index += half;
    }
    for (int bit = N; bit < group.lanes; bit *= 2) x[0] += __shfl_xor_sync(group.mask, x[0], bit);
    if (group.lane < N) take(index, x[0]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      for (int bit = 1; bit < group.lanes; bit *= 2) x[i] += __shfl_xor_sync(group.mask, x[i], bit);
      if (group.lane == 0) take(i, x[i]);
    }
  }
}

struct RowStep {
  int first, step, rows;
  __device__ int operator[](int b) const { return min(first + b * step, rows - 1); }  // past the last: the last again
};

/// Fills the table: for each piece and each run of V channels a lane calls fixed(c, active) once, then for Batch rows
/// at a time products(rows, c, active, x), which sets x[b][n], product n of row b over the V channels from c: 0 where
/// not active. Batch rows are on their way from memory at once.
template <int V, int N, int Batch, typename Fixed, typename Products>
__device__ void fill_table(const Cut& cut, const Round& round, int rows, float* table, Fixed fixed, Products products) {
  if (rows == 0) return;
  const Group group = group_of(cut);
  const int groups = kThreads / cut.lanes, segments = round.heads * cut.parts;
  const int splits = max(1, groups / segments);  // groups that share the rows of a piece
  for (int unit = group.index; unit < segments * splits; unit += groups) {
    const int segment = unit % segments, split = unit / segments;
    const auto [begin, end] = channels_of(cut, round, segment);
    for (int run = begin; run < end; run += group.lanes * V) {
      const int c = run + group.lane * V;
      fixed(c, c < end);
      for (int first = split; first < rows; first += splits * Batch) {
        float x[Batch][N];
        products(RowStep{first, splits, rows}, c, c < end, x);
#pragma unroll
        for (int b = 0; b < Batch; ++b) {
          const int row = first + b * splits;
          if (row >= rows) break;
          float* cells = table + row * cut.stride + segment * N;
          group_sums<N>(group, x[b], [&](int n, float sum) { cells[n] = run == begin ? sum : cells[n] + sum; });
        }
      }
    }
  }
}

}  // namespace mhar::kernels::portable
