// Eq. 38: one site merges its far part, the sources made since and a null source.
#include "kernels/depth_read/cuda_launch.cuh"
#include "kernels/depth_read/cuda_norm.cuh"

namespace mhar::kernels::portable {
namespace {

template <typename T, int V>
struct Pass {
  const DepthSizes& z;
  const NearForward& pass;
  const Cut& cut;
  float* table;  // [sources + 2, stride]: products, then weights; the last two rows those of the far part and the null
  int64_t p;

  __device__ const T* source(int i) const { return static_cast<const T*>(pass.sources[i]) + p * z.width; }
  __device__ int count() const { return static_cast<int>(pass.count); }
  __device__ float& rho(int row) const { return table[row * cut.stride + cut.stride - 1]; }

  __device__ void take_rho(float* spare) const {
    const int given = count() - (pass.newest ? 1 : 0);
    const int i = threadIdx.x;
    if (i < given) rho(i) = static_cast<const float*>(pass.rho[i])[p];
    if (!pass.newest) return;
    const float newest = newest_rho<T, V>(z, source(given), spare);
    if (threadIdx.x == 0) rho(given) = static_cast<float*>(pass.rho[given])[p] = newest;
  }

  __device__ void products(const Round& round) const {
    constexpr int kBatch = 4;
    float key[V];
    const auto take_key = [&](int c, bool active) {
      fill(key, 0.0f);
      if (active) load(static_cast<const float*>(pass.key) + c, key);
    };
    const auto multiply = [&](RowStep rows, int c, bool active, float(&x)[kBatch][1]) {
      float values[kBatch][V];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        fill(values[b], 0.0f);
        if (active) load(source(rows[b]) + c, values[b]);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) x[b][0] = product(key, values[b]);
    };
    fill_table<V, 1, kBatch>(cut, round, count(), table, take_key, multiply);
  }

  // A thread takes a head: at most 18 parts.
  __device__ void softmax(const Round& round) const {
    for (int head = threadIdx.x; head < round.heads; head += kThreads) {
      const int h = round.first + head;
      float* column = table + head * cut.parts;
      float& lse = static_cast<float*>(pass.lse)[p * z.heads + h];
      float largest = -INFINITY;
      for (int row = 0; row < count(); ++row) {
        float* cell = column + row * cut.stride;
        float a = *cell;
        for (int part = 1; part < cut.parts; ++part) a += cell[part];
        a *= rho(row);
        *cell = a;
        largest = fmaxf(largest, a);
      }
      float& far = column[count() * cut.stride];
      float& null = column[(count() + 1) * cut.stride];
      far = pass.partial ? lse : -INFINITY;
      null = pass.null_logits != nullptr ? static_cast<const float*>(pass.null_logits)[h] : -INFINITY;
      largest = fmaxf(largest, fmaxf(far, null));
      float total = 0.0f;
      for (int row = 0; row < count() + 2; ++row) {
        float& cell = column[row * cut.stride];
        cell = expf(cell - largest);
        total += cell;
      }
      const float scale = 1.0f / total;
      for (int row = 0; row < count() + 2; ++row) column[row * cut.stride] *= scale;
      lse = largest + logf(total);
    }
  }

  // Returns this thread's share of the squares of the norm's input.
  __device__ float mix(const Round& round, const NormInput<T>& input) const {
    float squares = 0.0f;
    T* mix = static_cast<T*>(pass.mix) + p * z.width;
    const int end = (round.first + round.heads) * cut.channels;
    for (int c = round.first * cut.channels + threadIdx.x * V; c < end; c += kThreads * V) {
      const float* column = table + (c / cut.channels - round.first) * cut.parts;
      float o[V], x[V];
      fill(o, kNothing);
      if (pass.partial) {
        load(mix + c, x);
        add_scaled(o, column[count() * cut.stride], x);
      }
#pragma unroll 4
      for (int row = 0; row < count(); ++row) {
        load(source(row) + c, x);
        add_scaled(o, column[row * cut.stride], x);
      }
      if (pass.null_value != nullptr) {
        load(static_cast<const T*>(pass.null_value) + c, x);
        add_scaled(o, column[(count() + 1) * cut.stride], x);
      }
      store(mix + c, o);
      if (pass.norm.weight != nullptr) {
        input.combine(c, o);
        squares += product(o, o);
      }
    }
    return squares;
  }
};

template <typename T, int V>
__global__ void __launch_bounds__(kThreads, kResident)
    near_forward_kernel(const __grid_constant__ DepthSizes z, const __grid_constant__ NearForward pass,
                        const __grid_constant__ Cut cut) {
  extern __shared__ __align__(16) float table[];
  __shared__ float spare[kWarps];
  for (int64_t p = blockIdx.x; p < z.tokens; p += gridDim.x) {
    const Pass<T, V> token{z, pass, cut, table, p};
    const NormInput<T> input(pass.mix, pass.stream, pass.gate, p * z.width);
    prefetch_rows<T>(z.width, token.count(), [&](int i) { return token.source(i); });
    if (pass.partial) prefetch_rows<T>(z.width, 1, [&](int) { return input.mix; });
    if (pass.stream != nullptr) prefetch_rows<T>(z.width, 1, [&](int) { return input.stream; });
    token.take_rho(spare);
    float squares = 0.0f;
    for (int first = 0; first < cut.all_heads; first += cut.heads) {
      const Round round = round_at(cut, first);
      token.products(round);
      __syncthreads();
      token.softmax(round);
      __syncthreads();
      squares += token.mix(round, input);
      __syncthreads();
    }
    if (pass.norm.weight != nullptr) finish_norm<T, V>(z, pass.norm, input, p, squares, spare);
  }
}

}  // namespace

int near_forward(const DepthSizes& z, const NearForward& pass, void* queue) {
  if (z.tokens == 0) return cudaSuccess;
  return with_storage(z, [&]<typename T, int V>() -> int {
    const int rows = static_cast<int>(pass.count) + 2;
    const Cut cut = cut_heads(z, V, rows, 1);
    return launch(near_forward_kernel<T, V>, token_blocks(z), table_bytes(cut, rows), queue, z, pass, cut);
  });
}

}  // namespace mhar::kernels::portable
