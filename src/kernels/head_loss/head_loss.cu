#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/head_loss/head_loss.h"
#include "kernels/head_loss/row.h"
#include "kernels/pointwise/cuda_pack.cuh"

namespace mhar::kernels {
namespace {

using namespace pointwise;

// A block owns a row. 151,936 bf16 logits are 304 KB: as much of the row as shared memory holds is read once, and the
// rest (13 MB over a GPU) is still in the L2 when the gradient reads it again. So the row crosses the memory bus once
// each way.
constexpr int kWarp = 32, kMostThreads = 1024, kUnroll = 4;
constexpr unsigned kAll = 0xFFFFFFFFu;

/// exp of numbers up to 0.
template <typename T>
__device__ float exponential(float x) {
  return sizeof(T) == 4 ? expf(x) : quick_exp(x);
}

template <typename T, int V>
__device__ float largest_of(const Pack<T, V>& pack) {
  if constexpr (V == 8) {
    const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(pack.at);
    const __nv_bfloat162 four = __hmax2(__hmax2(pairs[0], pairs[1]), __hmax2(pairs[2], pairs[3]));
    return fmaxf(__low2float(four), __high2float(four));
  } else {
    float most = widen(pack.at[0]);
#pragma unroll
    for (int v = 1; v < V; ++v) most = fmaxf(most, widen(pack.at[v]));
    return most;
  }
}

template <typename T, int V>
__device__ void fill(Pack<T, V>& pack, float value, int lane = -1) {
#pragma unroll
  for (int v = 0; v < V; ++v) {
    if (lane < 0 || v == lane) pack.at[v] = narrow<T>(value);
  }
}

/// Largest number and sum of exp(number - largest) of what was seen. Starts below every finite number and not at
/// -inf, whose differences are no numbers.
struct Sums {
  float largest = -FLT_MAX, sum = 0.0f;

  template <typename T>
  __device__ void raise(float to) {
    const float next = fmaxf(largest, to);
    sum *= exponential<T>(largest - next);
    largest = next;
  }
  template <typename T>
  __device__ void add(const Sums& other) {
    raise<T>(other.largest);
    sum += other.sum * exponential<T>(other.largest - largest);
  }
};

/// The sums of all threads, the same bits in each.
template <typename T>
__device__ Sums of_block(Sums mine) {
  __shared__ Sums parts[kMostThreads / kWarp];
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    Sums other;
    other.largest = __shfl_down_sync(kAll, mine.largest, step);
    other.sum = __shfl_down_sync(kAll, mine.sum, step);
    mine.add<T>(other);
  }
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Sums all;
  for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) all.add<T>(parts[warp]);
  return all;
}

/// A row as vectors, and where its target lies.
template <typename T, int V>
struct Row {
  T* logits;
  int vectors, kept;  ///< the first `kept` of them in shared memory
  int target, lane;

  __device__ static T* shared(int index) {
    extern __shared__ uint4 memory[];
    return reinterpret_cast<T*>(memory) + index * V;
  }
};

template <typename T, int V>
__device__ Sums sum_others(const Row<T, V>& row) {
  Sums sums;
  const int threads = static_cast<int>(blockDim.x);
  for (int first = static_cast<int>(threadIdx.x); first < row.vectors; first += kUnroll * threads) {
    Pack<T, V> packs[kUnroll];
    float largest = -FLT_MAX;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int index = first + u * threads;
      if (index < row.vectors) {
        packs[u] = load<V>(row.logits + int64_t{index} * V);
      } else {
        fill(packs[u], -INFINITY);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int index = first + u * threads;
      if (index == row.target) fill(packs[u], -INFINITY, row.lane);
      if (index < row.kept) store_shared(row.shared(index), packs[u]);
      largest = fmaxf(largest, largest_of(packs[u]));
    }
    sums.raise<T>(largest);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float part = 0.0f;
#pragma unroll
      for (int v = 0; v < V; ++v) part += exponential<T>(widen(packs[u].at[v]) - sums.largest);
      sums.sum += part;
    }
  }
  return of_block<T>(sums);
}

template <typename T, int V>
__device__ void write_gradient(const Row<T, V>& row, float largest, float share, float target) {
  const int threads = static_cast<int>(blockDim.x);
  for (int first = static_cast<int>(threadIdx.x); first < row.vectors; first += kUnroll * threads) {
    Pack<T, V> packs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int index = first + u * threads;
      if (index < row.kept) {
        packs[u] = load<V>(row.shared(index));
      } else if (index < row.vectors) {
        packs[u] = load<V>(row.logits + int64_t{index} * V);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int index = first + u * threads;
      if (index >= row.vectors) break;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        packs[u].at[v] = narrow<T>(exponential<T>(widen(packs[u].at[v]) - largest) * share);
      }
      if (index == row.target) fill(packs[u], target, row.lane);
      store(row.logits + int64_t{index} * V, packs[u]);
    }
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kMostThreads) head_loss_kernel(HeadLossSizes z, HeadLoss a, int kept) {
  const int64_t p = blockIdx.x, y = a.targets[p];
  Row<T, V> row{static_cast<T*>(a.logits) + p * z.classes, static_cast<int>(z.classes / V), kept,
                static_cast<int>(y / V), static_cast<int>(y % V)};
  if (y < 0) {
    if (threadIdx.x == 0) {
      a.loss[p] = 0.0f;
      if (a.squares != nullptr) a.squares[p] = 0.0f;
    }
    Pack<T, V> zero;
    fill(zero, 0.0f);
    for (int i = static_cast<int>(threadIdx.x); a.gradient && i < row.vectors; i += static_cast<int>(blockDim.x)) {
      store(row.logits + int64_t{i} * V, zero);
    }
    return;
  }
  if (y >= z.classes) {
    if (threadIdx.x == 0) a.loss[p] = NAN;
    return;
  }
  const float x = widen(row.logits[y]);
  const Sums sums = sum_others(row);
  const float largest = fmaxf(x, sums.largest);
  const HeadLossRow result = head_loss_row(x, largest, sums.sum * expf(sums.largest - largest), a.z_loss);
  if (threadIdx.x == 0) {
    a.loss[p] = result.loss;
    if (a.squares != nullptr) a.squares[p] = result.lse * result.lse;
  }
  if (!a.gradient) return;
  const float weight = static_cast<float>(a.weight) * (a.scale != nullptr ? *a.scale : 1.0f);
  write_gradient(row, largest, weight * result.share, weight * result.target);
}

const char* refuses(const HeadLossSizes& z) {
  if (z.classes > INT32_MAX) return "more than 2^31 - 1 classes";
  return taken(z.type) ? nullptr : kTypes;
}

template <typename T, int V>
int launch(const HeadLossSizes& z, const HeadLoss& a, cudaStream_t stream) {
  int device = 0, most = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  const int64_t vectors = z.classes / V, bytes = static_cast<int64_t>(sizeof(Pack<T, V>));
  const int64_t room = most - static_cast<int64_t>(kMostThreads / kWarp * sizeof(Sums));
  const int64_t kept = a.gradient ? std::min(vectors, room / bytes) : 0;
  const int64_t threads =
      std::clamp((vectors / kUnroll + kWarp - 1) / kWarp * kWarp, int64_t{kWarp}, int64_t{kMostThreads});
  const auto kernel = head_loss_kernel<T, V>;
  const auto code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kept * bytes));
  if (code != cudaSuccess) return code;
  kernel<<<static_cast<unsigned>(z.rows), static_cast<unsigned>(threads), static_cast<size_t>(kept * bytes), stream>>>(
      z, a, static_cast<int>(kept));
  return cudaGetLastError();
}

int run(const HeadLossSizes& z, const HeadLoss& a, void* queue) {
  if (z.rows == 0) return cudaSuccess;
  const bool whole = z.classes * bytes_of(z.type) % 16 == 0 && aligned({a.logits});
  return with_element(z.type, whole,
                      [&]<typename T, int V>() -> int { return launch<T, V>(z, a, static_cast<cudaStream_t>(queue)); });
}

}  // namespace

const HeadLossKernels& head_loss_kernels_cuda() {
  static const HeadLossKernels kernels{refuses, run};
  return kernels;
}

}  // namespace mhar::kernels
