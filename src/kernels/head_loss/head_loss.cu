#include <cooperative_groups.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/head_loss/head_loss.h"
#include "kernels/head_loss/row.h"
#include "kernels/pointwise/cuda_pack.cuh"

namespace mhar::kernels {
namespace {

using namespace pointwise;

// 151,936 bf16 logits are 304 KB, more than the shared memory of a multiprocessor. From 9.0 on a cluster of blocks
// shares a row: each keeps its part, and two or three blocks fit a multiprocessor, so that one reads while another
// computes or writes. Elsewhere a block owns a row: as much of it as shared memory holds is read once, and the rest (13
// MB over a GPU) is still in the L2 when the gradient reads it again. Either way the row crosses the memory bus once
// each way.
constexpr int kWarp = 32, kMostThreads = 1024, kClusterThreads = 512, kUnroll = 4;
constexpr int64_t kClusterPart = 75 * 1024;  // bytes of a row that a block of a cluster keeps
constexpr int kMostBlocks = 8;               // of a cluster on any device
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

/// The sums over the blocks that share a row, added in order: the same bits in each. No block may end or come here
/// again before the others have read its part.
template <typename T>
__device__ Sums of_cluster(const Sums& mine) {
  Sums all;
#if __CUDA_ARCH__ >= 900
  __shared__ Sums part;
  const auto cluster = cooperative_groups::this_cluster();
  if (threadIdx.x == 0) part = mine;
  cluster.sync();
  for (unsigned block = 0; block < cluster.num_blocks(); ++block) all.add<T>(*cluster.map_shared_rank(&part, block));
  cluster.barrier_arrive();
#endif
  return all;
}

__device__ void leave_cluster() {
#if __CUDA_ARCH__ >= 900
  cooperative_groups::this_cluster().barrier_wait();
#endif
}

/// A block's part of a row as vectors, and where the target lies in it, if it does.
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

/// `part`: vectors of a row for each of its `blocks`, of which this is number `block`.
template <typename T, int V, bool kCluster>
__device__ void head_loss_row_of(const HeadLossSizes& z, const HeadLoss& a, int part, int kept, int64_t p, int block) {
  const int64_t y = a.targets[p];
  T* logits = static_cast<T*>(a.logits) + p * z.classes;
  const int all = static_cast<int>(z.classes / V), first = min(block * part, all);
  const Row<T, V> row{logits + int64_t{first} * V, min(part, all - first), kept, static_cast<int>(y / V) - first,
                      static_cast<int>(y % V)};
  const bool speaks = threadIdx.x == 0 && block == 0;
  if (y < 0) {
    if (speaks) {
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
    if (speaks) a.loss[p] = NAN;
    return;
  }
  const float x = widen(logits[y]);  // before any block of the row writes
  Sums sums = sum_others(row);
  if constexpr (kCluster) sums = of_cluster<T>(sums);
  const float largest = fmaxf(x, sums.largest);
  const HeadLossRow result = head_loss_row(x, largest, sums.sum * expf(sums.largest - largest), a.z_loss);
  if (speaks) {
    a.loss[p] = result.loss;
    if (a.squares != nullptr) a.squares[p] = result.lse * result.lse;
  }
  if (a.gradient) {
    const float weight = static_cast<float>(a.weight) * (a.scale != nullptr ? *a.scale : 1.0f);
    write_gradient(row, largest, weight * result.share, weight * result.target);
  }
  if constexpr (kCluster) leave_cluster();
}

template <typename T, int V>
__global__ void __launch_bounds__(kMostThreads) head_loss_kernel(HeadLossSizes z, HeadLoss a, int kept) {
  head_loss_row_of<T, V, false>(z, a, static_cast<int>(z.classes / V), kept, blockIdx.x, 0);
}

template <typename T, int V>
__global__ void __launch_bounds__(kClusterThreads, 3)
    head_loss_cluster_kernel(HeadLossSizes z, HeadLoss a, int part, int blocks) {
  head_loss_row_of<T, V, true>(z, a, part, part, blockIdx.x / blocks, blockIdx.x % blocks);
}

const char* refuses(const HeadLossSizes& z) {
  if (z.classes > INT32_MAX) return "more than 2^31 - 1 classes";
  return taken(z.type) ? nullptr : kTypes;
}

/// Blocks of the cluster for a row, 1: a cluster is of no use, or the device has none or runs code for those before it.
template <typename Kernel>
int cluster_blocks(Kernel kernel, int64_t row_bytes) {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess || attributes.ptxVersion < 90) return 1;
  int blocks = 1;
  while (blocks < kMostBlocks && blocks * kClusterPart < row_bytes) blocks *= 2;
  return blocks * kClusterPart >= row_bytes ? blocks : 1;
}

template <typename Kernel>
int allow_shared(Kernel kernel, int64_t bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <typename T, int V>
int launch_cluster(const HeadLossSizes& z, const HeadLoss& a, int blocks, cudaStream_t stream) {
  const int64_t part = (z.classes / V + blocks - 1) / blocks, bytes = part * static_cast<int64_t>(sizeof(Pack<T, V>));
  const auto kernel = head_loss_cluster_kernel<T, V>;
  if (const int code = allow_shared(kernel, bytes); code != cudaSuccess) return code;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(z.rows * blocks);
  config.blockDim = kClusterThreads;
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, z, a, static_cast<int>(part), blocks);
}

template <typename T, int V>
int launch(const HeadLossSizes& z, const HeadLoss& a, cudaStream_t stream) {
  int device = 0, most = 0;
  cudaGetDevice(&device);
  const int64_t vectors = z.classes / V, bytes = static_cast<int64_t>(sizeof(Pack<T, V>));
  const int blocks = a.gradient ? cluster_blocks(head_loss_cluster_kernel<T, V>, vectors * bytes) : 1;
  if (blocks > 1) return launch_cluster<T, V>(z, a, blocks, stream);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  const int64_t room = most - static_cast<int64_t>(kMostThreads / kWarp * sizeof(Sums));
  const int64_t kept = a.gradient ? std::min(vectors, room / bytes) : 0;
  const int64_t threads =
      std::clamp((vectors / kUnroll + kWarp - 1) / kWarp * kWarp, int64_t{kWarp}, int64_t{kMostThreads});
  const auto kernel = head_loss_kernel<T, V>;
  if (const int code = allow_shared(kernel, kept * bytes); code != cudaSuccess) return code;
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
