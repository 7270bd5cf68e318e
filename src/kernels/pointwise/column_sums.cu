#include <algorithm>

#include "kernels/pointwise/cuda_pack.cuh"

namespace mhar::kernels::pointwise {
namespace {

constexpr int kSide = 32;

// A warp reads 32 columns of a row; the 32 warps of a block share the rows, whose sums are then added in order.
template <typename T>
__global__ void __launch_bounds__(kSide* kSide) column_sums_kernel(ColumnSums sums) {
  __shared__ float parts[kSide][kSide + 1];
  const int64_t columns = sums.first + sums.second, column = int64_t{blockIdx.x} * kSide + threadIdx.x;
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < sums.rows; row += kSide) sum += sums.partials[row * columns + column];
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
#pragma unroll
  for (int warp = 1; warp < kSide; ++warp) sum += parts[warp][threadIdx.x];
  T* place = column < sums.first ? static_cast<T*>(sums.first_sums) + column
                                 : static_cast<T*>(sums.second_sums) + column - sums.first;
  *place = narrow<T>(sum);
}

}  // namespace

int64_t persistent_blocks(int64_t items, int64_t resident) {
  int device = 0, processors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int64_t most = std::min(kMostPartials, resident * processors);
  const int64_t rounds = std::max<int64_t>(1, (items + most - 1) / most);
  return (items + rounds - 1) / rounds;
}

int sum_columns(Element type, const ColumnSums& sums, void* queue) {
  const auto stream = static_cast<cudaStream_t>(queue);
  const auto blocks = static_cast<unsigned>((sums.first + sums.second + kSide - 1) / kSide);
  return with_element(type, false, [&]<typename T, int V>() -> int {
    column_sums_kernel<T><<<blocks, dim3(kSide, kSide), 0, stream>>>(sums);
    return cudaGetLastError();
  });
}

}  // namespace mhar::kernels::pointwise
