#include "kernels/clip/clip.h"
#include "kernels/clip/ranges.h"
#include "kernels/pointwise/cuda_pack.cuh"

namespace mhar::kernels {
namespace {

using namespace pointwise;

constexpr int kWarp = 32, kThreads = 512, kUnroll = 4;

/// Sum over the block, valid in thread 0.
__device__ float of_block(float sum) {
  __shared__ float parts[kThreads / kWarp];
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, step);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return 0.0f;
#pragma unroll
  for (int warp = 1; warp < kThreads / kWarp; ++warp) sum += parts[warp];
  return sum;
}

template <typename T, int V>
__device__ float squares(const Pack<T, V>& pack) {
  float sum = 0.0f;
#pragma unroll
  for (int v = 0; v < V; ++v) sum = fmaf(widen(pack.at[v]), widen(pack.at[v]), sum);
  return sum;
}

// A block sums one range; several loads are on their way at a time.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads) squares_kernel(ClipPiece a, ClipRanges cut) {
  const int64_t begin = blockIdx.x * cut.length, end = min(begin + cut.length, a.count);
  const T* gradient = static_cast<const T*>(a.gradient);
  float sums[kUnroll] = {};
  int64_t i = begin + int64_t{threadIdx.x} * V;
  constexpr int64_t kStep = int64_t{kThreads} * V;
  for (; i + (kUnroll - 1) * kStep + V <= end; i += kUnroll * kStep) {
    Pack<T, V> packs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) packs[u] = load<V>(gradient + i + u * kStep);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sums[u] += squares(packs[u]);
  }
  for (; i < end; i += kStep) {
    for (int64_t j = i; j < min(i + V, end); ++j) sums[0] = fmaf(widen(gradient[j]), widen(gradient[j]), sums[0]);
  }
  const float sum = of_block((sums[0] + sums[1]) + (sums[2] + sums[3]));
  if (threadIdx.x == 0) a.partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) finish_kernel(ClipArguments a) {
  float sum = 0.0f;
#pragma unroll 4
  for (int64_t range = threadIdx.x; range < a.ranges; range += kThreads) sum += a.partials[range];
  sum = of_block(sum);
  if (threadIdx.x == 0) finish_clip(a, sum);
}

}  // namespace

int clip_squares_cuda(const ClipPiece& a, void* queue) {
  const ClipRanges cut(a.count);
  if (cut.ranges == 0) return cudaSuccess;
  return with_element(a.type, aligned({a.gradient}), [&]<typename T, int V>() -> int {
    squares_kernel<T, V><<<static_cast<unsigned>(cut.ranges), kThreads, 0, static_cast<cudaStream_t>(queue)>>>(a, cut);
    return cudaGetLastError();
  });
}

int clip_cuda(const ClipArguments& a, void* queue) {
  finish_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(queue)>>>(a);
  return cudaGetLastError();
}

}  // namespace mhar::kernels
