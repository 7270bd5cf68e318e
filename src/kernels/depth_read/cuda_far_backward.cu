// Eq. 39 over the sites behind a chunk, for up to 8 of its sources.
#include "kernels/depth_read/cuda_launch.cuh"

namespace mhar::kernels::portable {
namespace {

struct Pairs {
  float* base;                  // of token 0: [P, H, C, W] from the pass's first source and site on
  int64_t token, head, source;  // strides
};

// C: sources that a thread keeps, at least their number; the rest hold zeros and are not stored.
template <typename T, int V, int C>
struct Pass {
  const DepthSizes& z;
  const FarBackward& pass;
  const Cut& cut;
  const Pairs& pairs;
  float* table;  // [sites, stride]: products of w with C sources, then of dO; then pi and da * rho
  int sites;
  int64_t p;

  __device__ const T* source(int64_t i) const {
    return static_cast<const T*>(pass.sources) + (i * z.tokens + p) * z.width;
  }
  __device__ const T* gradient(int64_t site) const {
    return static_cast<const T*>(pass.mix_gradients) + (site * z.tokens + p) * z.width;
  }
  __device__ const float* key(int64_t site) const { return static_cast<const float*>(pass.keys) + site * z.width; }

  __device__ void products(const Round& round) const {
    constexpr int kBatch = 1;
    float s[C][V];
    const auto take_sources = [&](int c, bool active) {
#pragma unroll
      for (int i = 0; i < C; ++i) {
        fill(s[i], 0.0f);
        if (active && i < pass.count) load(source(i) + c, s[i]);
      }
    };
    const auto multiply = [&](RowStep rows, int c, bool active, float(&x)[kBatch][2 * C]) {
      float w[V], dO[V];
      fill(w, 0.0f), fill(dO, 0.0f);
      if (active) load(key(rows[0]) + c, w), load(gradient(rows[0]) + c, dO);
#pragma unroll
      for (int i = 0; i < C; ++i) x[0][i] = product(w, s[i]), x[0][C + i] = product(dO, s[i]);
    };
    fill_table<V, 2 * C, kBatch>(cut, round, sites, table, take_sources, multiply);
  }

  // A warp takes 8 sites of 4 sources at a time.
  __device__ void weigh(const Round& round) const {
    const int lane = threadIdx.x % 32, columns = round.heads * C;
    for (int four = threadIdx.x / 32 * 4; four < columns; four += kWarps * 4) {
      const int head = four / C, i = four % C + lane % 4, h = round.first + head;
      const bool there = i < pass.count;
      const float rho = there ? static_cast<const float*>(pass.rho)[i * z.tokens + p] : 0.0f;
      float* column = table + head * cut.parts * 2 * C + i;
      float* pair = pairs.base + p * pairs.token + h * pairs.head + i * pairs.source;
      float through_rho = 0.0f;
      for (int site = lane / 4; site < sites; site += 8) {
        float* cell = column + site * cut.stride;
        float a = cell[0], value = cell[C];
        for (int part = 1; part < cut.parts; ++part) a += cell[part * 2 * C], value += cell[part * 2 * C + C];
        a *= rho;
        const int64_t at = (site * z.tokens + p) * z.heads + h;
        const float pi = expf(fminf(a - static_cast<const float*>(pass.lse)[at], 0.0f));
        const float da = pi * (value - static_cast<const float*>(pass.deltas)[at]);
        cell[0] = pi;
        cell[C] = da * rho;
        if (there) pair[site] = da * rho;
        through_rho += da * a;
      }
#pragma unroll
      for (int bit = 4; bit < 32; bit *= 2) through_rho += __shfl_xor_sync(~0u, through_rho, bit);
      if (lane < 4 && there) static_cast<float*>(pass.through_rho)[(i * z.tokens + p) * z.heads + h] = through_rho;
    }
  }

  __device__ void pull(const Round& round) const {
    const int end = (round.first + round.heads) * cut.channels;
    for (int c = round.first * cut.channels + threadIdx.x * V; c < end; c += kThreads * V) {
      const float* column = table + (c / cut.channels - round.first) * cut.parts * 2 * C;
      float sums[C][V];
#pragma unroll
      for (int i = 0; i < C; ++i) fill(sums[i], kNothing);
#pragma unroll 2
      for (int site = 0; site < sites; ++site) {
        float x[V], w[V], weights[C];
        load(gradient(site) + c, x);
        load(key(site) + c, w);
        load(column + site * cut.stride, weights);
#pragma unroll
        for (int i = 0; i < C; ++i) add_scaled(sums[i], weights[i], x);
        load(column + site * cut.stride + C, weights);
#pragma unroll
        for (int i = 0; i < C; ++i) add_scaled(sums[i], weights[i], w);
      }
#pragma unroll
      for (int i = 0; i < C; ++i) {
        if (i >= pass.count) break;
        store(static_cast<T*>(pass.partials) + (i * z.tokens + p) * z.width + c, sums[i]);
      }
    }
  }
};

template <typename T, int V, int C>
__global__ void __launch_bounds__(kThreads, kResident)
    far_backward_kernel(const __grid_constant__ DepthSizes z, const __grid_constant__ FarBackward pass,
                        const __grid_constant__ Cut cut, const __grid_constant__ Pairs pairs, int sites) {
  extern __shared__ __align__(16) float table[];
  for (int64_t p = blockIdx.x; p < z.tokens; p += gridDim.x) {
    const Pass<T, V, C> token{z, pass, cut, pairs, table, sites, p};
    prefetch_rows<T>(z.width, sites, [&](int site) { return token.gradient(site); });
    for (int first = 0; first < cut.all_heads; first += cut.heads) {
      const Round round = round_at(cut, first);
      token.products(round);
      __syncthreads();
      token.weigh(round);
      __syncthreads();
      token.pull(round);
      __syncthreads();
    }
  }
}

}  // namespace

int far_backward(const DepthSizes& z, const BackwardChunk& chunk, const FarBackward& pass, void* queue) {
  if (z.tokens == 0) return cudaSuccess;
  const Scratch scratch = scratch_of(z, chunk);
  Pairs pairs{};
  pairs.source = scratch.rows;
  pairs.head = scratch.columns * scratch.rows;
  pairs.token = z.heads * pairs.head;
  pairs.base = reinterpret_cast<float*>(static_cast<char*>(chunk.scratch) + scratch.pairs) +
               pass.column * pairs.source + chunk.far - chunk.first;
  return with_storage(z, [&]<typename T, int V>() -> int {
    const int sites = static_cast<int>(chunk.sites - chunk.far), columns = pass.count <= 4 ? 4 : 8;
    const Cut cut = cut_heads(z, V, sites, 2 * columns);
    const auto kernel = columns == 4 ? far_backward_kernel<T, V, 4> : far_backward_kernel<T, V, 8>;
    return launch(kernel, token_blocks(z), table_bytes(cut, sites), queue, z, pass, cut, pairs, sites);
  });
}

}  // namespace mhar::kernels::portable
