// Eq. 39 and 40 within a chunk, with the norm's and the gate's gradients in front (Eq. 10 and 42).
#include "kernels/depth_read/cuda_launch.cuh"
#include "kernels/depth_read/cuda_norm.cuh"

namespace mhar::kernels::portable {
namespace {

struct Shared {
  float* sums;    // [D]: of dy * n over the block's tokens; in scratch where shared memory is too small
  float* table;   // [sites, stride]: products of w and of dO with s, then pi and da * rho
  float* spare;   // [kWarps]
  float* deltas;  // [kWarps]: of the pieces of heads, where these have pieces
};

/// The site at one token: dy to dO over o, delta, and what a gated design wants.
template <typename T, int V>
struct SitePart {
  const DepthSizes& z;
  const NearBackward& pass;
  const Cut& cut;
  const Shared& shared;
  int64_t p;
  NormInput<T> input;

  __device__ const T* gradient() const { return static_cast<const T*>(pass.normed_gradient) + p * z.width; }
  __device__ const T* weight() const { return static_cast<const T*>(pass.norm_weight); }

  // sum over d of dy * weight * n / D, Eq. 10
  __device__ float mean(float rho) const {
    float sum = 0.0f;
    for (int c = threadIdx.x * V; c < z.width; c += kThreads * V) {
      float x[V], dy[V], w[V], sums[V];
      input.load_at(c, x);
      load(gradient() + c, dy);
      load(weight() + c, w);
      load(shared.sums + c, sums);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float n = x[v] * rho;
        sum = fmaf(dy[v] * w[v], n, sum);
        sums[v] = fmaf(dy[v], n, sums[v]);
      }
      store(shared.sums + c, sums);
    }
    return block_sum(sum, shared.spare) / static_cast<float>(z.width);
  }

  // V channels of dO from c on; returns their part of delta. dh * o is added to `gate_product`.
  __device__ float replace(int c, float rho, float mean, float& gate_product) const {
    float o[V], dx[V];
    T* mix = static_cast<T*>(pass.mix) + p * z.width + c;
    load(mix, o);
    load(gradient() + c, dx);
    if (pass.norm_weight != nullptr) {
      float x[V], w[V];
#pragma unroll
      for (int v = 0; v < V; ++v) x[v] = o[v];
      input.combine(c, x);
      load(weight() + c, w);
#pragma unroll
      for (int v = 0; v < V; ++v) dx[v] = rho * (dx[v] * w[v] - x[v] * rho * mean);
    }
    if (pass.stream != nullptr) {
      gate_product += product(dx, o);
      float dh[V];
#pragma unroll
      for (int v = 0; v < V; ++v) dh[v] = dx[v], dx[v] *= input.gate;
      store(static_cast<T*>(pass.stream_gradient) + p * z.width + c, dh);
    }
    store(mix, dx);
    return product(dx, o);
  }

  // Ends with every thread seeing dO and delta.
  __device__ void run() const {
    float rho = 0.0f, mean_product = 0.0f, gate_product = 0.0f;
    if (pass.norm_weight != nullptr) {
      rho = static_cast<const float*>(pass.norm_rho)[p];
      mean_product = mean(rho);
    }
    float* delta = static_cast<float*>(pass.delta) + p * z.heads;
    const Group group = group_of(cut);
    const Round all{0, cut.all_heads};
    for (int segment = group.index; segment < cut.all_heads * cut.parts; segment += kThreads / cut.lanes) {
      const auto [begin, end] = channels_of(cut, all, segment);
      float sum[1] = {0.0f};
      for (int c = begin + group.lane * V; c < end; c += group.lanes * V) {
        sum[0] += replace(c, rho, mean_product, gate_product);
      }
      group_sums<1>(group, sum, [&](int, float x) { (cut.parts == 1 ? delta : shared.deltas)[segment] = x; });
    }
    __syncthreads();
    if (cut.parts > 1 && threadIdx.x < cut.all_heads) {
      const float* piece = shared.deltas + threadIdx.x * cut.parts;
      float sum = piece[0];
      for (int part = 1; part < cut.parts; ++part) sum += piece[part];
      delta[threadIdx.x] = sum;
    }
    if (pass.stream != nullptr) {
      const float sum = block_sum(gate_product, shared.spare);
      if (threadIdx.x == 0) static_cast<float*>(pass.gate_products)[p] = sum;
    }
    __syncthreads();
  }
};

/// The source at one token: ds from the near sites and the far pass.
template <typename T, int V>
struct SourcePart {
  const DepthSizes& z;
  const NearBackward& pass;
  const Cut& cut;
  const Shared& shared;
  int64_t p;
  float* pairs;        // of this token and source: [H, C, W] from the source's column and its first site on
  int64_t head_pairs;  // C * W
  int unread;          // sites of the chunk behind the near ones, which do not read this source: their da is 0

  __device__ const T* source() const { return static_cast<const T*>(pass.source) + p * z.width; }
  __device__ const T* gradient(int site) const { return static_cast<const T*>(pass.mix_gradients[site]) + p * z.width; }
  __device__ const float* key(int site) const { return static_cast<const float*>(pass.keys) + site * z.width; }
  __device__ int sites() const { return static_cast<int>(pass.sites); }

  __device__ void prefetch() const {
    prefetch_rows<T>(z.width, sites(), [&](int site) { return gradient(site); });
    prefetch_rows<T>(z.width, 1, [&](int) { return source(); });
    if (pass.partial == nullptr) return;
    prefetch_rows<T>(z.width, 1, [&](int) { return static_cast<const T*>(pass.partial) + p * z.width; });
  }

  __device__ void products(const Round& round) const {
    constexpr int kBatch = sizeof(T) == 2 ? 3 : 2;
    float s[V];
    const auto take_source = [&](int c, bool active) {
      fill(s, 0.0f);
      if (active) load(source() + c, s);
    };
    const auto multiply = [&](RowStep rows, int c, bool active, float(&x)[kBatch][2]) {
      float w[kBatch][V], dO[kBatch][V];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        fill(w[b], 0.0f), fill(dO[b], 0.0f);
        if (active) load(key(rows[b]) + c, w[b]), load(gradient(rows[b]) + c, dO[b]);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) x[b][0] = product(w[b], s), x[b][1] = product(dO[b], s);
    };
    fill_table<V, 2, kBatch>(cut, round, sites(), shared.table, take_source, multiply);
  }

  // Returns this thread's share of the sum over sites and heads of da * a.
  __device__ float weigh(const Round& round, float rho) const {
    float through_rho = 0.0f;
    for (int i = threadIdx.x; i < sites() * round.heads; i += kThreads) {
      const int site = i / round.heads, head = i % round.heads, h = round.first + head;
      float* cell = shared.table + site * cut.stride + head * cut.parts * 2;
      float a = cell[0], value = cell[1];
      for (int part = 1; part < cut.parts; ++part) a += cell[2 * part], value += cell[2 * part + 1];
      a *= rho;
      const int64_t at = (site * z.tokens + p) * z.heads + h;
      const float pi = expf(fminf(a - static_cast<const float*>(pass.lse)[at], 0.0f));
      const float da = pi * (value - static_cast<const float*>(pass.deltas)[at]);
      cell[0] = pi;
      cell[1] = da * rho;
      pairs[h * head_pairs + site] = da * rho;
      through_rho += da * a;
    }
    return through_rho;
  }

  __device__ void clear_unread() const {
    for (int i = threadIdx.x; i < unread * cut.all_heads; i += kThreads) {
      pairs[i / unread * head_pairs + sites() + i % unread] = 0.0f;
    }
  }

  __device__ float far_through_rho() const {
    float sum = 0.0f;
    if (pass.partial == nullptr || pass.through_rho == nullptr) return sum;
    const float* given = static_cast<const float*>(pass.through_rho) + p * z.heads;
    for (int h = threadIdx.x; h < z.heads; h += kThreads) sum += given[h];
    return sum;
  }

  // `scale`: of s, Eq. 40.
  __device__ void pull(const Round& round, float scale) const {
    const int end = (round.first + round.heads) * cut.channels;
    for (int c = round.first * cut.channels + threadIdx.x * V; c < end; c += kThreads * V) {
      const float* column = shared.table + (c / cut.channels - round.first) * cut.parts * 2;
      float ds[V], x[V];
      fill(ds, kNothing);
      if (pass.partial != nullptr) load(static_cast<const T*>(pass.partial) + p * z.width + c, ds);
#pragma unroll 2
      for (int site = 0; site < sites(); ++site) {
        load(gradient(site) + c, x);
        add_scaled(ds, column[site * cut.stride], x);
        load(key(site) + c, x);
        add_scaled(ds, column[site * cut.stride + 1], x);
      }
      load(source() + c, x);
      add_scaled(ds, scale, x);
      store(static_cast<T*>(pass.source_gradient) + p * z.width + c, ds);
    }
  }

  // ds needs the sum over all heads: where these take several rounds, each round's products are taken twice.
  __device__ void run() const {
    const float rho = static_cast<const float*>(pass.rho)[p];
    const bool one_round = cut.heads == cut.all_heads;
    clear_unread();
    float through_rho = far_through_rho(), scale = 0.0f;
    for (int sweep = 0; sweep < 2; ++sweep) {
      const bool pulls = sweep == 1;
      for (int first = 0; first < cut.all_heads; first += cut.heads) {
        const Round round = round_at(cut, first);
        if (!pulls || !one_round) {
          products(round);
          __syncthreads();
          const float share = weigh(round, rho);
          if (!pulls) through_rho += share;
          __syncthreads();
        }
        if (pulls) pull(round, scale);
        if (!one_round) __syncthreads();
      }
      if (!pulls) scale = -(rho * rho / static_cast<float>(z.width)) * block_sum(through_rho, shared.spare);
    }
    __syncthreads();
  }
};

struct Places {
  Cut cut;
  float* pairs;      // of token 0
  float* norm_sums;  // of the site, [blocks, D]
  int64_t token_pairs, head_pairs;
  int unread;
  bool shared_sums;
};

template <typename T, int V>
__global__ void __launch_bounds__(kThreads, kNormResident)
    near_backward_kernel(const __grid_constant__ DepthSizes z, const __grid_constant__ NearBackward pass,
                         const __grid_constant__ Places places) {
  extern __shared__ __align__(16) float dynamic[];
  __shared__ float small[2 * kWarps];
  float* block_sums = places.norm_sums + blockIdx.x * z.width;
  const Shared shared{places.shared_sums ? dynamic : block_sums, dynamic + (places.shared_sums ? z.width : 0), small,
                      small + kWarps};
  const bool sums = pass.normed_gradient != nullptr && pass.norm_weight != nullptr;
  const int64_t own = threadIdx.x * V, step = kThreads * V;  // channels of shared.sums that this thread alone touches
  for (int64_t c = own; sums && c < z.width; c += step) {
    for (int v = 0; v < V; ++v) shared.sums[c + v] = 0.0f;
  }
  for (int64_t p = blockIdx.x; p < z.tokens; p += gridDim.x) {
    const SourcePart<T, V> source{
        z, pass, places.cut, shared, p, places.pairs + p * places.token_pairs, places.head_pairs, places.unread};
    if (pass.source != nullptr) source.prefetch();
    if (pass.normed_gradient != nullptr) {
      SitePart<T, V>{z, pass, places.cut, shared, p, NormInput<T>(pass.mix, pass.stream, pass.gate, p * z.width)}.run();
    }
    if (pass.source != nullptr) source.run();
  }
  for (int64_t c = own; sums && places.shared_sums && c < z.width; c += step) {
    for (int v = 0; v < V; ++v) block_sums[c + v] = shared.sums[c + v];
  }
}

}  // namespace

int near_backward(const DepthSizes& z, const BackwardChunk& chunk, const NearBackward& pass, void* queue) {
  if (z.tokens == 0) return cudaSuccess;
  const Scratch scratch = scratch_of(z, chunk);
  char* const base = static_cast<char*>(chunk.scratch);
  const int64_t column = pass.source == nullptr ? 0 : pass.index - chunk.first;
  const int64_t row = pass.normed_gradient == nullptr ? 0 : pass.site - chunk.first;
  return with_storage(z, [&]<typename T, int V>() -> int {
    const int rows = pass.source == nullptr ? 1 : std::max(1, static_cast<int>(pass.sites));
    Places places{};
    places.cut = cut_heads(z, V, rows, 2);
    places.head_pairs = scratch.columns * scratch.rows;
    places.token_pairs = z.heads * places.head_pairs;
    if (pass.source != nullptr) places.unread = static_cast<int>(chunk.far - pass.index - pass.sites);
    // Site first + r is row r, and source i's first near site is i itself.
    places.pairs = reinterpret_cast<float*>(base + scratch.pairs) + column * scratch.rows + column;
    places.norm_sums = reinterpret_cast<float*>(base + scratch.norm_sums) + row * norm_blocks(z) * z.width;
    const int64_t table = table_bytes(places.cut, rows), sums = round_up(z.width, 4) * 4;
    places.shared_sums = sums <= kTableBytes;
    return launch(near_backward_kernel<T, V>, norm_blocks(z), table + (places.shared_sums ? sums : 0), queue, z, pass,
                  places);
  });
}

}  // namespace mhar::kernels::portable
