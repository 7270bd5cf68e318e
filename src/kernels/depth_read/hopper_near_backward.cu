// Near pass of the backward: a site's norm and gate back to dO (Eq. 10, 42, 5), then a source's gradient from the sites
// of its chunk (Eq. 39, 40). dO of the site goes on to the source through shared memory of the same warp.
#include "kernels/depth_read/hopper.h"
#include "kernels/depth_read/hopper_near.h"
#include "kernels/depth_read/hopper_ring.h"
#include "kernels/depth_read/hopper_scratch.h"

namespace mhar::kernels::hopper {
namespace {

struct Backward {
  RowShape shape;
  Rows rows;    // site: dy, o, stream; source: s, partial, dO of its sites from the last to the first
  Rows source;  // s, where it stays in shared memory for as long as the token does
  bool has_site, has_source, partial;
  int sites;

  const void* weight;
  const float* norm_rho;
  void* mix;
  const void* stream;
  const float* gate;
  void* stream_gradient;
  float* gate_products;
  float* site_delta;
  float* norm_sums;  // [kNormBlocks, D]

  const float* rho;
  const float* keys;
  const float* lse;
  const float* deltas;
  const float* through_rho;
  void* source_gradient;
  void* pairs;  // 8 bf16 each, [H, P]
};

// Two blocks of a multiprocessor, but one where the sums of the norm's weight gradient are in shared memory.
template <int V>
inline constexpr int kBlocks = V <= kMostHeld ? 2 : 1;

// Fewer are launched where a block's shared memory does not suffice.
template <int V>
inline constexpr int kMostWarps = V <= kMostHeld ? kWarps<V> : 8;

// Where each part of a block's shared memory begins; the rings are last. A warp's statistics of one token: rho and
// norm_rho, then by heads what the far pass left of c, lse of each site, delta of each site.
struct Layout {
  int statistics, statistics_pitch, weight, keys, gradients, sources, sums, rings;

  __host__ __device__ Layout(const Backward& a, int warps, bool held) {
    const int pitch = a.shape.pitch;
    statistics = warps * (kMostDepth + 1) * 8;
    statistics_pitch = (2 + a.shape.heads * (1 + 2 * a.sites) + 3) / 4 * 16;
    weight = statistics + warps * 2 * statistics_pitch;
    keys = weight + (a.weight != nullptr ? pitch : 0);
    gradients = keys + a.sites * 2 * pitch;
    sources = gradients + (a.has_site && a.sites > 0 ? warps * pitch : 0);
    sums = sources + (a.source.count > 0 ? warps * pitch : 0);
    rings = sums + (a.weight != nullptr && !held ? warps * 2 * pitch : 0);
  }

  static constexpr int kRho = 0, kNormRho = 1, kThrough = 2;
  __device__ static int lse(int site, const RowShape& shape) { return 2 + shape.heads * (1 + site); }
  __device__ static int delta(int site, int sites, const RowShape& shape) { return lse(sites + site, shape); }
};

__device__ __forceinline__ void add_to_sums(uint32_t row, uint32_t at, int pitch, const float (&a)[8],
                                            const float (&b)[8]) {
  float sum[8];
  load_wide(sum, row, at, pitch);
#pragma unroll
  for (int q = 0; q < 8; ++q) sum[q] = fmaf(a[q], b[q], sum[q]);
  store_wide(row, at, pitch, sum);
}

// Where registers allow it: otherwise the compiler holds packed values and unpacks them for every site.
template <int kRows>
__device__ __forceinline__ void keep(float (&value)[kRows][8]) {
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
#pragma unroll
    for (int q = 0; q < 8; ++q) asm volatile("" : "+f"(value[j][q]));
  }
}

template <int V>
__global__ void __launch_bounds__(kMostWarps<V> * 32, kBlocks<V>)
    near_backward_kernel(const __grid_constant__ Backward a) {
  if (!kOnHopper) return;
  constexpr bool kHeld = V <= kMostHeld;
  extern __shared__ __align__(128) unsigned char memory[];
  const uint32_t base = shared_address(memory);
  const RowShape& shape = a.shape;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const Layout layout(a, warps, kHeld);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0), lane = static_cast<int>(threadIdx.x) % 32;
  Places<V> places(shape);
  const int64_t first = int64_t{blockIdx.x} * warps + warp, step = int64_t{gridDim.x} * warps;
  const uint32_t my_ring = base + layout.rings + warp * shape.depth * shape.pitch;
  const uint32_t barriers = base + warp * (kMostDepth + 1) * 8, my_source = base + layout.sources + warp * shape.pitch;
  Ring ring(a.rows, shape, shape.depth, first, step, my_ring, barriers);
  Ring source_ring(a.source, shape, a.source.count, first, step, my_source, barriers + kMostDepth * 8);
  ring.begin(false);
  if (!kHeld) source_ring.begin(false), source_ring.begin(true);
  if (a.weight != nullptr) copy_row(base + layout.weight, a.weight, shape);
  for (int n = 0; n < a.sites; ++n) {
    copy_wide(base + layout.keys + n * 2 * shape.pitch, a.keys + int64_t{n} * shape.width, shape);
  }
  const uint32_t my_gradient = base + layout.gradients + warp * shape.pitch;
  if (a.has_site && a.sites > 0 && lane == 0 && shape.pitch > shape.bytes) {
    store_shared_16(my_gradient + shape.bytes, make_uint4(0, 0, 0, 0));
  }
  __syncthreads();
  wait_for_previous_kernel();
  allow_next_kernel();
  ring.begin(true);
  const float gate = a.stream != nullptr ? *a.gate : 0.0f;

  // Statistics come while the token before is worked on.
  const int64_t PH = shape.tokens * shape.heads;
  const int listed = a.sites * shape.heads;
  const auto fetch = [&](int64_t token, uint32_t to) {
    if (token >= shape.tokens) return;
    if (lane == 0 && a.rho != nullptr) async_load<4>(to + Layout::kRho * 4, a.rho + token);
    if (lane == 0 && a.norm_rho != nullptr) async_load<4>(to + Layout::kNormRho * 4, a.norm_rho + token);
    if (lane < shape.heads && a.through_rho != nullptr) {
      async_load<4>(to + (Layout::kThrough + lane) * 4, a.through_rho + token * shape.heads + lane);
    }
    for (int i = lane; i < listed; i += 32) {
      const int site = i * places.lanes / 32, head = i - site * shape.heads;
      const int64_t at = site * PH + token * shape.heads + head;
      async_load<4>(to + (Layout::lse(0, shape) + i) * 4, a.lse + at);
      if (site > 0 || !a.has_site) async_load<4>(to + (Layout::delta(0, a.sites, shape) + i) * 4, a.deltas + at);
    }
  };
  uint32_t known = base + layout.statistics + warp * 2 * layout.statistics_pitch;
  uint32_t other = known + layout.statistics_pitch;
  fetch(first, known);

  const uint32_t my_sums = (kHeld ? my_ring : base + layout.sums + warp * 2 * shape.pitch);
  float sums[kHeld ? V : 1][8] = {};
  if (!kHeld && a.weight != nullptr) {
    const float zero[8] = {};
#pragma unroll
    for (int j = 0; j < V; ++j) store_wide(my_sums, places.at[j], shape.pitch, zero);
  }

  for (int64_t token = first; token < shape.tokens; token += step) {
    async_wait_all();
    __syncwarp();
    fetch(token + step, other);
    if (!kHeld) places.forget();
    const int64_t offset = token * shape.bytes;

    if (a.has_site) {
      uint4 dy[V], mix[V];
      uint32_t row = ring.take();
#pragma unroll
      for (int j = 0; j < V; ++j) dy[j] = load_shared_16(row + places.at[j]);
      ring.give();
      row = ring.take();
#pragma unroll
      for (int j = 0; j < V; ++j) mix[j] = load_shared_16(row + places.at[j]);
      ring.give();
      if (a.stream != nullptr) row = ring.take();
      // What the norm took: o, or x of Eq. 42.
      const auto normed = [&](int j) {
        return a.stream == nullptr ? mix[j] : gated(load_shared_16(row + places.at[j]), gate, mix[j]);
      };
      float inverse = 0, slope = 0;  // Eq. 10: dx = inverse * (dy * weight - slope * x)
      if (a.weight != nullptr) {
        float dot[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < V; ++j) {
          float g[8], w[8], x[8];
          unpack(g, dy[j]), unpack(x, normed(j)), unpack(w, load_shared_16(base + layout.weight + places.at[j]));
#pragma unroll
          for (int q = 0; q < 8; ++q) dot[j % 2] = fmaf(g[q] * w[q], x[q], dot[j % 2]);
          if (!kHeld) forget(dy[j]), forget(mix[j]), __syncwarp();
        }
        inverse = load_shared(known + Layout::kNormRho * 4);
        slope = sum_over_lanes<32>(dot[0] + dot[1]) * (inverse * inverse) / static_cast<float>(shape.width);
      }
      float delta[2] = {0, 0}, product_sum = 0;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const bool there = places.at[j] < shape.bytes;
        if (a.weight != nullptr) {
          float g[8], w[8], x[8], n[8];
          const uint4 packed = normed(j);
          unpack(g, dy[j]), unpack(x, packed), unpack(w, load_shared_16(base + layout.weight + places.at[j]));
          unpack(n, scaled(packed, inverse));
          if (kHeld) {
#pragma unroll
            for (int q = 0; q < 8; ++q) sums[kHeld ? j : 0][q] = fmaf(g[q], n[q], sums[kHeld ? j : 0][q]);
          } else {
            add_to_sums(my_sums, places.at[j], shape.pitch, g, n);
          }
#pragma unroll
          for (int q = 0; q < 8; ++q) x[q] = inverse * fmaf(-slope, x[q], g[q] * w[q]);
          dy[j] = pack(x);
        }
        float o[8], g[8];
        unpack(o, mix[j]), unpack(g, dy[j]);
        if (a.stream != nullptr) {
          if (there) store_16(static_cast<char*>(a.stream_gradient) + offset, places.at[j], dy[j]);
          product_sum = add_products(product_sum, g, o);
          dy[j] = scaled(dy[j], gate);
          unpack(g, dy[j]);
        }
        delta[j % 2] = add_products(delta[j % 2], g, o);
        if (there) store_16(static_cast<char*>(a.mix) + offset, places.at[j], dy[j]);
        if (a.sites > 0 && there) store_shared_16(my_gradient + places.at[j], dy[j]);
        if (!kHeld) __syncwarp();
      }
      if (a.stream != nullptr) {
        ring.give();
        product_sum = sum_over_lanes<32>(product_sum);
        if (lane == 0) a.gate_products[token] = product_sum;
      }
      const float head_delta = places.sum_in_head(delta[0] + delta[1]);
      if (places.sub == 0) {
        a.site_delta[token * shape.heads + places.head] = head_delta;
        if (a.sites > 0) store_shared(known + (Layout::delta(0, a.sites, shape) + places.head) * 4, head_delta);
      }
      __syncwarp();
    }
    if (a.has_source) {
      if (!kHeld) places.forget();
      uint32_t row = kHeld ? ring.take() : source_ring.take();
      float held_source[kHeld ? V : 1][8];
      if (kHeld) {
#pragma unroll
        for (int j = 0; j < V; ++j) unpack(held_source[kHeld ? j : 0], load_shared_16(row + places.at[j]));
        if (V <= 5) keep(held_source);
        ring.give();
      }
      const auto read_source = [&](float(&s)[8], int j) {
        if constexpr (kHeld) {
#pragma unroll
          for (int q = 0; q < 8; ++q) s[q] = held_source[j][q];
        } else {
          unpack(s, load_shared_16(my_source + places.at[j]));
        }
      };
      float sum[V][8];  // minus zero is what a sum can begin with and keep a minus zero that is added
#pragma unroll
      for (int j = 0; j < V; ++j) {
#pragma unroll
        for (int q = 0; q < 8; ++q) sum[j][q] = -0.0f;
      }
      if (a.partial) {
        row = ring.take();
#pragma unroll
        for (int j = 0; j < V; ++j) unpack(sum[j], load_shared_16(row + places.at[j]));
        ring.give();
      }
      const float rho = load_shared(known + Layout::kRho * 4);
      float through = a.through_rho != nullptr ? load_shared(known + (Layout::kThrough + places.head) * 4) : 0.0f;
      uint32_t pairs[4] = {0, 0, 0, 0};
#pragma unroll 1
      for (int n = a.sites - 1; n >= 0; --n) {  // Eq. 39
        const bool own = n == 0 && a.has_site;
        const uint32_t gradient = own ? my_gradient : ring.take();
        const uint32_t key = base + layout.keys + n * 2 * shape.pitch;
        uint4 packed[kHeld ? V : 1];
        float logits[2] = {0, 0}, dots[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < V; ++j) {
          uint4& held = packed[kHeld ? j : 0];
          held = load_shared_16(gradient + places.at[j]);
          float s[8], g[8], w[8];
          read_source(s, j), unpack(g, held), load_wide(w, key, places.at[j], shape.pitch);
          logits[j % 2] = add_products(logits[j % 2], w, s), dots[j % 2] = add_products(dots[j % 2], g, s);
          if (!kHeld) __syncwarp();
        }
        float logit = logits[0] + logits[1], dot = dots[0] + dots[1];
        if (kHeld && !own) ring.give();
        places.sum_in_head(logit, dot);
        logit *= rho;
        const float lse = load_shared(known + (Layout::lse(n, shape) + places.head) * 4);
        const float delta = load_shared(known + (Layout::delta(n, a.sites, shape) + places.head) * 4);
        const float weight = exp2_fast(fminf(logit - lse, 0.0f) * kLog2OfE);
        const float pull = weight * (dot - delta), pair = pull * rho;
        through = fmaf(pull, logit, through);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          float w[8];
          load_wide(w, key, places.at[j], shape.pitch);
          add_scaled(sum[j], weight, kHeld ? packed[kHeld ? j : 0] : load_shared_16(gradient + places.at[j]));
#pragma unroll
          for (int q = 0; q < 8; ++q) sum[j][q] = fmaf(pair, w[q], sum[j][q]);
          if (!kHeld) __syncwarp();
        }
        if (!kHeld && !own) ring.give();
        pairs[3] = __funnelshift_l(pairs[2], pairs[3], 16), pairs[2] = __funnelshift_l(pairs[1], pairs[2], 16);
        pairs[1] = __funnelshift_l(pairs[0], pairs[1], 16), pairs[0] = pairs[0] << 16 | pack(pair, 0.0f);
      }
      if (!kHeld) places.forget();
      const float back = -rho * rho / static_cast<float>(shape.width) * places.sum_of_heads(through);  // Eq. 40
#pragma unroll
      for (int j = 0; j < V; ++j) {
        float s[8];
        read_source(s, j);
#pragma unroll
        for (int q = 0; q < 8; ++q) sum[j][q] = fmaf(back, s[q], sum[j][q]);
        if (places.at[j] < shape.bytes) {
          store_16(static_cast<char*>(a.source_gradient) + offset, places.at[j], pack(sum[j]));
        }
      }
      if (!kHeld) source_ring.give();
      if (places.sub == 0) {
        static_cast<uint4*>(a.pairs)[places.head * shape.tokens + token] =
            make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
    const uint32_t turn = known;
    known = other, other = turn;
  }

  if (a.weight == nullptr) return;
  if (kHeld) {  // the rings are empty
#pragma unroll
    for (int j = 0; j < V; ++j) store_wide(my_sums, places.at[j], shape.pitch, sums[kHeld ? j : 0]);
  }
  __syncthreads();
  const int between = kHeld ? shape.depth * shape.pitch : 2 * shape.pitch;
  const uint32_t all_sums = base + (kHeld ? layout.rings : layout.sums);
  for (int quad = static_cast<int>(threadIdx.x); quad * 4 < shape.width; quad += static_cast<int>(blockDim.x)) {
    float4 total = make_float4(0, 0, 0, 0);
    for (int w = 0; w < warps; ++w) {
      const uint4 part = load_shared_16(all_sums + w * between + quad % 2 * shape.pitch + quad / 2 * 16);
      total.x += __uint_as_float(part.x), total.y += __uint_as_float(part.y);
      total.z += __uint_as_float(part.z), total.w += __uint_as_float(part.w);
    }
    for (int64_t block = blockIdx.x; block < kNormBlocks; block += gridDim.x) {
      reinterpret_cast<float4*>(a.norm_sums + block * shape.width)[quad] = total;
      total = make_float4(0, 0, 0, 0);  // for blocks that a launch of this size lacks
    }
  }
}

}  // namespace

int near_backward_hopper(const DepthSizes& z, const BackwardChunk& chunk, const NearBackward& n, void* stream) {
  if (z.tokens == 0) return cudaSuccess;
  if (near_refuses(z) != nullptr || n.sites > kChunk) return cudaErrorInvalidValue;
  return for_vectors(z, [&]<int V>() -> int {
    constexpr bool kHeld = V <= kMostHeld;
    const Scratch scratch = scratch_of(z, chunk.sites);
    char* const scratch_at = static_cast<char*>(chunk.scratch);
    Backward a{};
    a.shape = row_shape(z);
    a.has_site = n.normed_gradient != nullptr;
    if (a.has_site) {
      a.rows.add(n.normed_gradient, true);
      a.rows.add(n.mix, false);
      a.mix = n.mix, a.site_delta = static_cast<float*>(n.delta);
      if (n.stream != nullptr) {
        a.rows.add(n.stream, true);
        a.stream = n.stream, a.gate = static_cast<const float*>(n.gate);
        a.stream_gradient = n.stream_gradient, a.gate_products = static_cast<float*>(n.gate_products);
      }
      if (n.norm_weight != nullptr) {
        a.weight = n.norm_weight, a.norm_rho = static_cast<const float*>(n.norm_rho);
        a.norm_sums =
            reinterpret_cast<float*>(scratch_at + scratch.norm_sums) + (n.site - chunk.first) * kNormBlocks * z.width;
      }
    }
    a.has_source = n.source != nullptr;
    if (a.has_source) {
      a.sites = static_cast<int>(n.sites);
      a.partial = n.partial != nullptr;
      (kHeld ? a.rows : a.source).add(n.source, false);
      if (a.partial) a.rows.add(n.partial, true);
      for (int i = a.sites - 1; i >= (a.has_site ? 1 : 0); --i) a.rows.add(n.mix_gradients[i], i < 2);
      a.rho = static_cast<const float*>(n.rho), a.keys = static_cast<const float*>(n.keys);
      a.lse = static_cast<const float*>(n.lse), a.deltas = static_cast<const float*>(n.deltas);
      if (a.partial) a.through_rho = static_cast<const float*>(n.through_rho);
      a.source_gradient = n.source_gradient;
      a.pairs = scratch_at + scratch.near_pairs + (n.index - chunk.first) * z.heads * z.tokens * kChunk * 2;
    }
    const int most_shared = kBlocks<V> == 2 ? kHalfShared : kMostShared;
    // Fewer warps where the keys of many wide sites leave no room for their rings.
    for (int warps = kMostWarps<V>; warps > 1; warps /= 2) {
      const int64_t blocks = std::min(near_blocks(z.tokens, warps, kBlocks<V>), kNormBlocks);
      const Layout layout(a, warps, kHeld);
      a.shape.depth = ring_depth(a.shape, blocks * warps, a.rows.count, (most_shared - layout.rings) / warps);
      if (a.shape.depth < std::min(a.rows.count, warps > 2 || kHeld ? 2 : 1)) continue;
      const int64_t shared = layout.rings + int64_t{warps} * a.shape.depth * a.shape.pitch;
      return launch_early(near_backward_kernel<V>, a, blocks, warps * 32, shared, stream);
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace mhar::kernels::hopper
