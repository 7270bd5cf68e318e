// Eq. 37: the sources so far against the keys of up to 8 sites.
#include "kernels/depth_read/cuda_launch.cuh"
#include "kernels/depth_read/cuda_norm.cuh"

namespace mhar::kernels::portable {
namespace {

// S: columns of a piece, at least the number of sites; the rest hold zeros and are not stored.
template <typename T, int V, int S>
struct Pass {
  const DepthSizes& z;
  const FarForward& pass;
  const Cut& cut;
  float* table;  // [sources + 1, stride]: products, then exp(a - largest); in the last row 1 / their sum
  int64_t p;

  __device__ const T* source(int64_t i) const {
    return static_cast<const T*>(pass.sources) + (i * z.tokens + p) * z.width;
  }
  __device__ int count() const { return static_cast<int>(pass.count); }
  __device__ float& rho(int row) const { return table[row * cut.stride + cut.stride - 1]; }

  __device__ void take_rho(float* spare) const {
    float* kept = static_cast<float*>(pass.rho);
    const int given = count() - (pass.newest ? 1 : 0);
    for (int i = threadIdx.x; i < given; i += kThreads) rho(i) = kept[i * z.tokens + p];
    if (!pass.newest) return;
    const float newest = newest_rho<T, V>(z, source(given), spare);
    if (threadIdx.x == 0) rho(given) = kept[given * z.tokens + p] = newest;
  }

  __device__ void products(const Round& round) const {
    constexpr int kBatch = sizeof(T) == 2 ? 4 : 2;
    float keys[S][V];
    const auto take_keys = [&](int c, bool active) {
#pragma unroll
      for (int s = 0; s < S; ++s) {
        fill(keys[s], 0.0f);
        if (active && s < pass.sites) load(static_cast<const float*>(pass.keys) + s * z.width + c, keys[s]);
      }
    };
    const auto multiply = [&](RowStep rows, int c, bool active, float(&x)[kBatch][S]) {
      float values[kBatch][V];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        fill(values[b], 0.0f);
        if (active) load(source(rows[b]) + c, values[b]);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
#pragma unroll
        for (int s = 0; s < S; ++s) x[b][s] = product(keys[s], values[b]);
      }
    };
    fill_table<V, S, kBatch>(cut, round, count(), table, take_keys, multiply);
  }

  // A warp takes 8 rows of 4 columns at a time.
  __device__ void softmax(const Round& round) const {
    const int lane = threadIdx.x % 32, columns = round.heads * S;
    for (int four = threadIdx.x / 32 * 4; four < columns; four += kWarps * 4) {
      const int head = four / S, s = four % S + lane % 4;
      float* column = table + head * cut.parts * S + s;
      float largest = -INFINITY, total = 0.0f;
      for (int row = lane / 4; row < count(); row += 8) {
        float* cell = column + row * cut.stride;
        float a = *cell;
        for (int part = 1; part < cut.parts; ++part) a += cell[part * S];
        a *= rho(row);
        *cell = a;
        largest = fmaxf(largest, a);
      }
#pragma unroll
      for (int bit = 4; bit < 32; bit *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, bit));
      for (int row = lane / 4; row < count(); row += 8) {
        float* cell = column + row * cut.stride;
        *cell = expf(*cell - largest);
        total += *cell;
      }
#pragma unroll
      for (int bit = 4; bit < 32; bit *= 2) total += __shfl_xor_sync(~0u, total, bit);
      if (lane < 4) column[count() * cut.stride] = 1.0f / total;
      if (lane < 4 && s < pass.sites) {
        static_cast<float*>(pass.lse)[(s * z.tokens + p) * z.heads + round.first + head] = largest + logf(total);
      }
    }
  }

  // Returns this thread's share of the squares of the first site's mix.
  __device__ float mix(const Round& round) const {
    float squares = 0.0f;
    const int end = (round.first + round.heads) * cut.channels;
    for (int c = round.first * cut.channels + threadIdx.x * V; c < end; c += kThreads * V) {
      const float* column = table + (c / cut.channels - round.first) * cut.parts * S;
      float o[S][V];
#pragma unroll
      for (int s = 0; s < S; ++s) fill(o[s], kNothing);
#pragma unroll 4
      for (int row = 0; row < count(); ++row) {
        float x[V], weights[S];
        load(source(row) + c, x);
        load(column + row * cut.stride, weights);
#pragma unroll
        for (int s = 0; s < S; ++s) add_scaled(o[s], weights[s], x);
      }
#pragma unroll
      for (int s = 0; s < S; ++s) {
        if (s >= pass.sites) break;
        const float scale = column[count() * cut.stride + s];
#pragma unroll
        for (int v = 0; v < V; ++v) o[s][v] *= scale;
        store(static_cast<T*>(pass.mixes) + (s * z.tokens + p) * z.width + c, o[s]);
        if (s == 0) squares += product(o[s], o[s]);
      }
    }
    return squares;
  }
};

template <typename T, int V, int S>
__global__ void __launch_bounds__(kThreads, kResident)
    far_forward_kernel(const __grid_constant__ DepthSizes z, const __grid_constant__ FarForward pass,
                       const __grid_constant__ Cut cut) {
  extern __shared__ __align__(16) float table[];
  __shared__ float spare[kWarps];
  for (int64_t p = blockIdx.x; p < z.tokens; p += gridDim.x) {
    const Pass<T, V, S> token{z, pass, cut, table, p};
    prefetch_rows<T>(z.width, token.count(), [&](int i) { return token.source(i); });
    token.take_rho(spare);
    float squares = 0.0f;
    for (int first = 0; first < cut.all_heads; first += cut.heads) {
      const Round round = round_at(cut, first);
      token.products(round);
      __syncthreads();
      token.softmax(round);
      __syncthreads();
      squares += token.mix(round);
      __syncthreads();
    }
    if (pass.norm.weight != nullptr) {
      finish_norm<T, V>(z, pass.norm, NormInput<T>(pass.mixes, nullptr, nullptr, p * z.width), p, squares, spare);
    }
  }
}

}  // namespace

int far_forward(const DepthSizes& z, const FarForward& pass, void* queue) {
  if (z.tokens == 0) return cudaSuccess;
  return with_storage(z, [&]<typename T, int V>() -> int {
    const int rows = static_cast<int>(pass.count) + 1, columns = pass.sites <= 4 ? 4 : 8;
    const Cut cut = cut_heads(z, V, rows, columns);
    const auto kernel = columns == 4 ? far_forward_kernel<T, V, 4> : far_forward_kernel<T, V, 8>;
    return launch(kernel, token_blocks(z), table_bytes(cut, rows), queue, z, pass, cut);
  });
}

}  // namespace mhar::kernels::portable
