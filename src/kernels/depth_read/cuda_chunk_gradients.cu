// Eq. 41: dw of all sites from one chunk of sources, and the weights' gradients of the chunk's norms.
#include "kernels/depth_read/cuda_launch.cuh"

namespace mhar::kernels::portable {
namespace {

constexpr int kTile = kSiteTile;

struct KeySums {
  const void* sources;  // [C, P, D]
  const float* pairs;   // [P, H, C, W]
  float* output;        // [blocks, W, D]
  int64_t tokens, width, heads, channels;
  int64_t block_tokens, columns, rows;
};

// A thread sums kTile sites over its V channels, the tokens of its block and the chunk's sources. Blocks that read the
// same sources for other sites are neighbours in the grid, so that a source comes from DRAM about once.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads, kResident) key_sums_kernel(const __grid_constant__ KeySums k) {
  const int64_t c = (int64_t{blockIdx.z} * kThreads + threadIdx.x) * V;
  if (c >= k.width) return;
  const int columns = static_cast<int>(k.columns), first_row = blockIdx.x * kTile;
  const int64_t begin = blockIdx.y * k.block_tokens, end = min(begin + k.block_tokens, k.tokens);
  const int64_t per_head = k.columns * k.rows;
  const float* own = k.pairs + c / k.channels * per_head + first_row;
  float dw[kTile][V];
#pragma unroll
  for (int r = 0; r < kTile; ++r) fill(dw[r], 0.0f);
  for (int64_t p = begin; p < end; ++p) {
#pragma unroll 2
    for (int i = 0; i < columns; ++i) {
      float s[V], pair[kTile];
      load(static_cast<const T*>(k.sources) + (i * k.tokens + p) * k.width + c, s);
      load(own + p * k.heads * per_head + i * k.rows, pair);
#pragma unroll
      for (int r = 0; r < kTile; ++r) {
        // A site before the source has no pair. Past the last site there is none either, but nobody reads that row.
        add_scaled(dw[r], first_row + r >= i ? pair[r] : 0.0f, s);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kTile; ++r) store(k.output + (blockIdx.y * k.rows + first_row + r) * k.width + c, dw[r]);
}

struct RowSums {
  const float* parts;
  int64_t blocks, block_stride, row_stride, width;
  float* output;      // [rows, width]
  int64_t added_row;  // rows from here on are added to
};

constexpr int kSlices = 8;

// A block takes 32 channels of a row; its slices sum every kSlices-th part, and the first adds up the slices in order.
__global__ void __launch_bounds__(32 * kSlices) row_sums_kernel(const __grid_constant__ RowSums rows) {
  __shared__ float slices[kSlices][32];
  const int64_t c = int64_t{blockIdx.x} * 32 + threadIdx.x, row = blockIdx.y;
  const float* parts = rows.parts + row * rows.row_stride + c;
  float sum = 0.0f;
  if (c < rows.width) {
#pragma unroll 4
    for (int64_t block = threadIdx.y; block < rows.blocks; block += kSlices) sum += parts[block * rows.block_stride];
  }
  slices[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= rows.width) return;
#pragma unroll
  for (int slice = 1; slice < kSlices; ++slice) sum += slices[slice][threadIdx.x];
  float& total = rows.output[row * rows.width + c];
  total = row < rows.added_row ? sum : total + sum;
}

int sum_rows(const RowSums& sums, int64_t rows, void* queue) {
  const dim3 grid(static_cast<unsigned>(quotient_up(sums.width, 32)), static_cast<unsigned>(rows));
  row_sums_kernel<<<grid, dim3(32, kSlices), 0, static_cast<cudaStream_t>(queue)>>>(sums);
  return cudaGetLastError();
}

}  // namespace

int chunk_gradients(const DepthSizes& z, const BackwardChunk& chunk, const ChunkGradients& pass, void* queue) {
  if (z.tokens == 0) return cudaSuccess;
  const Scratch scratch = scratch_of(z, chunk);
  const auto at = [&](int64_t offset) { return reinterpret_cast<float*>(static_cast<char*>(chunk.scratch) + offset); };
  const int64_t sites = chunk.sites - chunk.first, D = z.width;
  const KeySums sums{.sources = pass.sources,
                     .pairs = at(scratch.pairs),
                     .output = at(scratch.key_sums),
                     .tokens = z.tokens,
                     .width = D,
                     .heads = z.heads,
                     .channels = z.channels(),
                     .block_tokens = quotient_up(z.tokens, scratch.blocks),
                     .columns = scratch.columns,
                     .rows = scratch.rows};
  int status = with_storage(z, [&]<typename T, int V>() -> int {
    const dim3 grid(static_cast<unsigned>(scratch.rows / kTile), static_cast<unsigned>(scratch.blocks),
                    static_cast<unsigned>(quotient_up(D, kThreads * V)));
    key_sums_kernel<T, V><<<grid, kThreads, 0, static_cast<cudaStream_t>(queue)>>>(sums);
    return cudaGetLastError();
  });
  if (status != cudaSuccess) return status;
  const RowSums keys{.parts = at(scratch.key_sums),
                     .blocks = scratch.blocks,
                     .block_stride = scratch.rows * D,
                     .row_stride = D,
                     .width = D,
                     .output = static_cast<float*>(pass.key_gradients) + chunk.first * D,
                     .added_row = chunk.count};
  status = sum_rows(keys, sites, queue);
  if (status != cudaSuccess || pass.normed == 0) return status;
  const RowSums norms{.parts = at(scratch.norm_sums),
                      .blocks = norm_blocks(z),
                      .block_stride = D,
                      .row_stride = norm_blocks(z) * D,
                      .width = D,
                      .output = static_cast<float*>(pass.norm_gradients) + chunk.first * D,
                      .added_row = pass.normed};
  return sum_rows(norms, pass.normed, queue);
}

}  // namespace mhar::kernels::portable
