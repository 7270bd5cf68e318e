#include <algorithm>

#include "kernels/embedding/embedding.h"
#include "kernels/pointwise/cuda_pack.cuh"

namespace mhar::kernels {
namespace {

using namespace pointwise;

// The sorted ids are cut into pieces of kPiece. A run of equal ids that lies inside a piece is summed and added by the
// piece's block. One that goes on leaves a partial sum in each piece it touches, and the block of its first piece adds
// them up in a second kernel: a frequent id takes no longer than its pieces take in order.
constexpr int kPiece = 32;
constexpr int kThreads = 128;
constexpr int kAhead = 4;  // rows on their way at once

/// Where a piece of the sorted ids lies, and whether its first and last run go on outside it.
struct Piece {
  int64_t first, last;
  bool continues, goes_on;

  __device__ Piece(const EmbeddingSizes& z, const int32_t* ids, int64_t index)
      : first(index * kPiece), last(min(first + kPiece, z.tokens)) {
    continues = first > 0 && ids[first - 1] == ids[first];
    goes_on = last < z.tokens && ids[last] == ids[last - 1];
  }
};

template <int V>
struct Columns {
  int64_t first;
  bool inside;

  __device__ explicit Columns(const EmbeddingSizes& z)
      : first((int64_t{blockIdx.y} * kThreads + threadIdx.x) * V), inside(first < z.width) {}
};

/// Partial sums of a piece [2, D]: of the run that began before it, and of the one that begins in it and goes on.
__device__ float* partial_of(const EmbeddingSizes& z, const EmbeddingBackward& b, int64_t piece, bool began_before) {
  return static_cast<float*>(b.scratch) + (2 * piece + (began_before ? 0 : 1)) * z.width;
}

template <typename T, int V>
__device__ void add_to_table(const EmbeddingSizes& z, const EmbeddingBackward& b, int64_t id, int64_t column,
                             const float (&sum)[V]) {
  T* place = static_cast<T*>(b.table_gradient) + id * z.width + column;
  Pack<T, V> row = load<V>(place);
#pragma unroll
  for (int v = 0; v < V; ++v) row.at[v] = narrow<T>(widen(row.at[v]) + sum[v]);
  store(place, row);
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads) embedding_pieces_kernel(EmbeddingSizes z, EmbeddingBackward b) {
  const Piece piece(z, b.ids, blockIdx.x);
  const Columns<V> columns(z);
  if (!columns.inside) return;
  float sum[V] = {};
  bool began_before = piece.continues;
  for (int64_t first = piece.first; first < piece.last; first += kAhead) {
    Pack<T, V> rows[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i < piece.last) {
        rows[i] = load<V>(static_cast<const T*>(b.gradient) + b.order[first + i] * z.width + columns.first);
      }
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = first + i;
      if (at >= piece.last) break;
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] += widen(rows[i].at[v]);
      const bool ends = at + 1 == piece.last ? !piece.goes_on : b.ids[at + 1] != b.ids[at];
      if (!ends && at + 1 < piece.last) continue;
      if (ends && !began_before) {
        add_to_table<T, V>(z, b, b.ids[at], columns.first, sum);
      } else {
        float* partial = partial_of(z, b, blockIdx.x, began_before) + columns.first;
#pragma unroll
        for (int v = 0; v < V; ++v) partial[v] = sum[v];
      }
      began_before = false;
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] = 0.0f;
    }
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads) embedding_runs_kernel(EmbeddingSizes z, EmbeddingBackward b) {
  Piece piece(z, b.ids, blockIdx.x);
  const Columns<V> columns(z);
  const int32_t id = b.ids[piece.last - 1];
  const bool begins_here = !(piece.continues && b.ids[piece.first] == id);
  if (!columns.inside || !piece.goes_on || !begins_here) return;
  float sum[V];
  load_floats(partial_of(z, b, blockIdx.x, false) + columns.first, sum);
  for (int64_t next = blockIdx.x + 1;; ++next) {
    float part[V];
    load_floats(partial_of(z, b, next, true) + columns.first, part);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += part[v];
    piece = Piece(z, b.ids, next);
    if (b.ids[piece.last - 1] != id || !piece.goes_on) break;
  }
  add_to_table<T, V>(z, b, id, columns.first, sum);
}

int64_t pieces_of(const EmbeddingSizes& z) { return (z.tokens + kPiece - 1) / kPiece; }

const char* refuses(const EmbeddingSizes& z) { return taken(z.type) ? nullptr : kTypes; }

int64_t scratch_bytes(const EmbeddingSizes& z) { return pieces_of(z) * 2 * z.width * 4; }

int backward(const EmbeddingSizes& z, const EmbeddingBackward& b, void* queue) {
  if (z.tokens == 0) return cudaSuccess;
  const auto stream = static_cast<cudaStream_t>(queue);
  const bool whole = z.width * bytes_of(z.type) % 16 == 0 && aligned({b.gradient, b.table_gradient, b.scratch});
  return with_element(z.type, whole, [&]<typename T, int V>() -> int {
    const int64_t tiles = (z.width / V + kThreads - 1) / kThreads;
    const dim3 grid(static_cast<unsigned>(pieces_of(z)), static_cast<unsigned>(tiles));
    embedding_pieces_kernel<T, V><<<grid, kThreads, 0, stream>>>(z, b);
    if (const auto status = cudaGetLastError(); status != cudaSuccess) return status;
    embedding_runs_kernel<T, V><<<grid, kThreads, 0, stream>>>(z, b);
    return cudaGetLastError();
  });
}

}  // namespace

const EmbeddingKernels& embedding_kernels_cuda() {
  static const EmbeddingKernels kernels{refuses, scratch_bytes, backward};
  return kernels;
}

}  // namespace mhar::kernels
