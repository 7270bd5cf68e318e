// Near pass of the backward: a site's norm and gate back to dO (Eq. 10, 42, 5), then a source's gradient from the sites
// of its chunk (Eq. 39, 40). dO of the site goes on to the source through shared memory of the same warp.
#include "kernels/depth_read/hopper.h"
#include "kernels/depth_read/hopper_near.h"
#include "kernels/depth_read/hopper_near_backward.h"
#include "kernels/depth_read/hopper_near_dots.h"
#include "kernels/depth_read/hopper_ring.h"
#include "kernels/depth_read/hopper_scratch.h"

namespace mhar::kernels::hopper {
namespace {

template <int V>
__global__ void __launch_bounds__(kBackwardMostWarps<V> * 32, kBackwardBlocks<V>)
    near_backward_kernel(const __grid_constant__ NearBackwardPass a) {
  if (!kOnHopper) return;
  constexpr bool kHeld = V <= kMostHeld;
  extern __shared__ __align__(128) unsigned char memory[];
  const uint32_t base = shared_address(memory);
  const RowShape& shape = a.shape;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const BackwardLayout<V> layout(a, warps, gridDim.x);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0), lane = static_cast<int>(threadIdx.x) % 32;
  Places<V> places(shape);
  const HeadSums head_sums(places.lanes);
  const int64_t first = int64_t{blockIdx.x} * warps + warp, step = int64_t{gridDim.x} * warps;
  const uint32_t my_ring = base + layout.rings + warp * shape.depth * shape.pitch;
  const uint32_t barriers = base + warp * BackwardLayout<V>::kBarriers * 8;
  const uint32_t my_source = base + layout.sources + warp * shape.pitch;
  Ring ring(a.rows, shape, shape.depth, first, step, my_ring, barriers);
  Ring source_ring(a.source, shape, a.source.count, first, step, my_source, barriers + kMostDepth * 8);
  // All that a block needs is sent for before anything is waited for: a pass is not much longer than a trip to memory.
  ring.begin(false);
  if (!kHeld) source_ring.begin(false), source_ring.begin(true);
  for (int n = 0; n < a.sites; ++n) {
    fetch_key(base + layout.keys + n * BackwardLayout<V>::kKeyRows * shape.pitch, a.keys + int64_t{n} * shape.width,
              shape);
  }
  if (a.weight != nullptr) fetch_row(base + layout.weight, a.weight, shape);
  wait_for_previous_kernel();
  allow_next_kernel();
  ring.begin(true);

  // Statistics come while the token before is worked on.
  const int64_t PH = shape.tokens * shape.heads;
  const int listed = a.sites * shape.heads;
  const auto fetch = [&](int64_t token, uint32_t to) {
    if (token >= shape.tokens) return;
    if (lane == 0 && a.rho != nullptr) async_load<4>(to + BackwardLayout<V>::kRho * 4, a.rho + token);
    if (lane == 0 && a.norm_rho != nullptr) async_load<4>(to + BackwardLayout<V>::kNormRho * 4, a.norm_rho + token);
    if (lane < shape.heads && a.through_rho != nullptr) {
      async_load<4>(to + (BackwardLayout<V>::kThrough + lane) * 4, a.through_rho + token * shape.heads + lane);
    }
    for (int i = lane; i < listed; i += 32) {
      const int site = i * places.lanes / 32, head = i - site * shape.heads;
      const int64_t at = site * PH + token * shape.heads + head;
      async_load<4>(to + (BackwardLayout<V>::lse(0, shape) + i) * 4, a.lse + at);
      if (site > 0 || !a.has_site)
        async_load<4>(to + (BackwardLayout<V>::delta(0, a.sites, shape) + i) * 4, a.deltas + at);
    }
  };
  uint32_t known = base + layout.statistics + warp * layout.statistics_pitch;
  uint32_t other = known + layout.next;
  fetch(first, known);
  const float gate = a.stream != nullptr ? *a.gate : 0.0f;

  const uint32_t my_gradient = base + layout.gradients + warp * shape.pitch;
  if (!kHeld && a.has_site && a.sites > 0 && lane == 0 && shape.pitch > shape.bytes) {
    store_shared_16(my_gradient + shape.bytes, make_uint4(0, 0, 0, 0));
  }
  const uint32_t my_sums = kSumsHeld<V> ? my_ring : base + layout.sums + warp / layout.sharers * 2 * shape.pitch;
  float sums[kSumsHeld<V> ? V : 1][8] = {};
  if (!kSumsHeld<V> && a.weight != nullptr) {
    for (int at = static_cast<int>(threadIdx.x) * 16; at < layout.rings - layout.sums; at += warps * 32 * 16) {
      store_shared_16(base + layout.sums + at, make_uint4(0, 0, 0, 0));
    }
  }
  // The first of the sharers waits for the last one's turn at the token before.
  const int sharer = warp % layout.sharers;
  const uint32_t my_turn = barriers + (kMostDepth + 1) * 8;
  const uint32_t next_turn = my_turn + (sharer + 1 < layout.sharers ? 1 : -sharer) * BackwardLayout<V>::kBarriers * 8;
  bool wait_for_turn = sharer > 0;
  uint32_t turn_parity = 0;
  if (kSharers<V> != 1 && lane == 0) barrier_init(my_turn, 32);

  async_wait_all();
  for (int n = 0; n < a.sites; ++n) {
    const uint32_t key = base + layout.keys + n * BackwardLayout<V>::kKeyRows * shape.pitch;
    split_key<Pairing::alternate>(key, kWideKeys<V> ? key + 2 * shape.pitch : key, shape);
  }
  __syncthreads();

  for (int64_t token = first; token < shape.tokens; token += step) {
    async_wait_all();
    __syncwarp();
    fetch(token + step, other);
    if (!kSumsHeld<V>) places.forget();
    const int64_t offset = token * shape.bytes;

    uint4 dy[V];  // dO in the end
    if (a.has_site) {
      uint4 mix[V];
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
          if (!kSumsHeld<V>) forget(dy[j]), forget(mix[j]), __syncwarp();
        }
        inverse = load_shared(known + BackwardLayout<V>::kNormRho * 4);
        slope = sum_over_lanes<32>(dot[0] + dot[1]) * (inverse * inverse) / static_cast<float>(shape.width);
      }
      float delta[2] = {0, 0}, product_sum = 0;
      float products[kSharers<V> > 1 ? V : 1][8] = {};  // exact
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const bool there = places.at[j] < shape.bytes;
        if (a.weight != nullptr) {
          float g[8], w[8], x[8], n[8];
          const uint4 packed = normed(j);
          unpack(g, dy[j]), unpack(x, packed), unpack(w, load_shared_16(base + layout.weight + places.at[j]));
          unpack(n, scaled(packed, inverse));
          if (kSumsHeld<V>) {
#pragma unroll
            for (int q = 0; q < 8; ++q) sums[kSumsHeld<V> ? j : 0][q] = fmaf(g[q], n[q], sums[kSumsHeld<V> ? j : 0][q]);
          } else if (kSharers<V> > 1) {
#pragma unroll
            for (int q = 0; q < 8; ++q) products[kSharers<V> > 1 ? j : 0][q] = g[q] * n[q];
          } else {
            float sum[8];
            load_wide(sum, my_sums, places.at[j], shape.pitch);
#pragma unroll
            for (int q = 0; q < 8; ++q) sum[q] = fmaf(g[q], n[q], sum[q]);
            store_wide(my_sums, places.at[j], shape.pitch, sum);
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
        if (!kHeld && a.sites > 0 && there) store_shared_16(my_gradient + places.at[j], dy[j]);
        if (!kSumsHeld<V>) forget(dy[j]), __syncwarp();
      }
      if (a.stream != nullptr) {
        ring.give();
        product_sum = sum_over_lanes<32>(product_sum);
        if (lane == 0) a.gate_products[token] = product_sum;
      }
      const float head_delta = places.sum_in_head(delta[0] + delta[1]);
      if (places.sub == 0) {
        a.site_delta[token * shape.heads + places.head] = head_delta;
        if (a.sites > 0)
          store_shared(known + (BackwardLayout<V>::delta(0, a.sites, shape) + places.head) * 4, head_delta);
      }
      if (kSharers<V> != 1 && a.weight != nullptr) {
        if (wait_for_turn) barrier_wait(my_turn, turn_parity), turn_parity ^= 1;
        wait_for_turn = true;
#pragma unroll
        for (int j = 0; j < V; ++j) {
          float sum[8];
          load_wide(sum, my_sums, places.at[j], shape.pitch);
#pragma unroll
          for (int q = 0; q < 8; ++q) sum[q] += products[kSharers<V> > 1 ? j : 0][q];
          store_wide(my_sums, places.at[j], shape.pitch, sum);
        }
        barrier_arrive(next_turn);  // every lane: each adds to what its like in the warp before has written
      }
      __syncwarp();
    }
    if (a.has_source) {
      if (!kSumsHeld<V>) places.forget();
      uint32_t row = kHeld ? ring.take() : source_ring.take();
      // (x, z, y, w): pairs that dO meets in neighbouring registers.
      const auto in_pairs = [](const uint4& v) { return make_uint4(v.x, v.z, v.y, v.w); };
      uint4 held_source[kHeld ? V : 1];
      if (kHeld) {
#pragma unroll
        for (int j = 0; j < V; ++j) held_source[kHeld ? j : 0] = in_pairs(load_shared_16(row + places.at[j]));
        ring.give();
      }
      const auto read_source = [&](int j) {
        return kHeld ? held_source[kHeld ? j : 0] : in_pairs(load_shared_16(my_source + places.at[j]));
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
      const float rho = load_shared(known + BackwardLayout<V>::kRho * 4);
      float through =
          a.through_rho != nullptr ? load_shared(known + (BackwardLayout<V>::kThrough + places.head) * 4) : 0.0f;
      // The site above, whose dO is in registers, then the others from the last.
      const bool with_own = a.has_site && a.sites > 0;
#pragma unroll 1
      for (int turn = with_own ? a.sites : a.sites - 1; turn >= (with_own ? 1 : 0); --turn) {  // Eq. 39
        const bool own = turn == a.sites;
        const int n = own ? 0 : turn;
        const uint32_t wide_key = base + layout.keys + n * BackwardLayout<V>::kKeyRows * shape.pitch;
        const uint32_t key = wide_key + (kWideKeys<V> ? 2 * shape.pitch : 0);
        uint32_t gradient = my_gradient;
        if (!own) {
          gradient = ring.take();
          if (kHeld) {
#pragma unroll
            for (int j = 0; j < V; ++j) dy[kHeld ? j : 0] = load_shared_16(gradient + places.at[j]);
            ring.give();
          }
        }
        float logit = 0, dot = 0;
        // Whether heads share four lanes is a constant of the copy: masks cost as much as the tensor cores save.
        const auto find = [&](auto shared_lanes, bool mine) {
          float logits[kChains<V>][4] = {}, dots[2][4] = {};
#pragma unroll
          for (int j = 0; j < V; ++j) {
            const uint4 read = read_source(j), s = decltype(shared_lanes)::value ? masked(read, mine) : read;
            const uint4 g = kHeld ? dy[j] : load_shared_16(gradient + places.at[j]);
            multiply(logits[0], load_shared_16(key + places.at[j]), s.x, s.y);
            multiply(dots[0], g, s.x, s.y);
            multiply(logits[kChains<V> - 1], load_shared_16(key + shape.pitch + places.at[j]), s.z, s.w);
            multiply(dots[1], g, s.z, s.w);
            if (!kHeld) __syncwarp();
          }
          const float a_sum = kChains<V> == 2 ? head_sums.of_both(logits[0], logits[kChains<V> - 1])
                                              : head_sums.of(logits[0], logits[0]),
                      b_sum = head_sums.of(dots[0], dots[1]);
          if (mine) logit = a_sum, dot = b_sum;
        };
        if (places.lanes >= 4) {
          find(std::false_type{}, true);
        } else {
#pragma unroll 1
          for (int part = 0; part < head_sums.turns(); ++part) find(std::true_type{}, head_sums.my_turn(part));
        }
        logit *= rho;
        const uint32_t lse_at = known + (BackwardLayout<V>::lse(n, shape) + places.head) * 4;
        const float lse = load_shared(lse_at);
        const float delta = load_shared(known + (BackwardLayout<V>::delta(n, a.sites, shape) + places.head) * 4);
        const float weight = exp2_fast(fminf(logit - lse, 0.0f) * kLog2OfE);
        const float pull = weight * (dot - delta), pair = pull * rho;
        through = fmaf(pull, logit, through);
        __syncwarp();
        if (places.sub == 0) store_shared(lse_at, pair);  // lse has been read
#pragma unroll
        for (int j = 0; j < V; ++j) {
          add_scaled(sum[j], weight, kHeld ? dy[j] : load_shared_16(gradient + places.at[j]));
          if (kWideKeys<V>) {
            float w[8];
            load_wide(w, wide_key, places.at[j], shape.pitch);
#pragma unroll
            for (int q = 0; q < 8; ++q) sum[j][q] = fmaf(pair, w[q], sum[j][q]);
          } else {
            add_key(sum[j], pair, key + places.at[j], shape.pitch);
          }
          if (!kHeld) __syncwarp();
        }
        if (!kHeld && !own) ring.give();
      }
      if (!kSumsHeld<V>) places.forget();
      const float back = -rho * rho / static_cast<float>(shape.width) * places.sum_of_heads(through);  // Eq. 40
#pragma unroll
      for (int j = 0; j < V; ++j) {
        add_scaled(sum[j], back, in_pairs(read_source(j)));
        if (places.at[j] < shape.bytes) {
          store_16(static_cast<char*>(a.source_gradient) + offset, places.at[j], pack(sum[j]));
        }
      }
      if (!kHeld) source_ring.give();
      if (places.sub == 0) {
        float pairs[kChunk];
#pragma unroll
        for (int n = 0; n < kChunk; ++n) {
          pairs[n] = n < a.sites ? load_shared(known + (BackwardLayout<V>::lse(n, shape) + places.head) * 4) : 0.0f;
        }
        static_cast<uint4*>(a.pairs)[places.head * shape.tokens + token] = pack(pairs);
      }
    }
    const uint32_t turn = known;
    known = other, other = turn;
  }

  if (a.weight == nullptr) return;
  if (kSumsHeld<V>) {  // the rings are empty
#pragma unroll
    for (int j = 0; j < V; ++j) store_wide(my_sums, places.at[j], shape.pitch, sums[kSumsHeld<V> ? j : 0]);
  }
  __syncthreads();
  const int rows = kSumsHeld<V> ? warps : warps / layout.sharers;
  const int between = kSumsHeld<V> ? shape.depth * shape.pitch : 2 * shape.pitch;
  const uint32_t all_sums = base + (kSumsHeld<V> ? layout.rings : layout.sums);
  for (int quad = static_cast<int>(threadIdx.x); quad * 4 < shape.width; quad += static_cast<int>(blockDim.x)) {
    float4 total = make_float4(0, 0, 0, 0);
    for (int w = 0; w < rows; ++w) {
      const uint4 part = load_shared_16(all_sums + w * between + quad % 2 * shape.pitch + quad / 2 * 16);
      total.x += __uint_as_float(part.x), total.y += __uint_as_float(part.y);
      total.z += __uint_as_float(part.z), total.w += __uint_as_float(part.w);
    }
    for (int64_t block = blockIdx.x; block < a.norm_rows; block += gridDim.x) {
      reinterpret_cast<float4*>(a.norm_sums + block * shape.width)[quad] = total;
      total = make_float4(0, 0, 0, 0);  // for blocks that a launch of this size lacks
    }
  }
}

}  // namespace

int64_t norm_blocks(const DepthSizes& z) {
  return for_vectors(z, [&]<int V>() -> int { return kNormBlocks / 2 * kBackwardBlocks<V>; });
}

int near_backward_hopper(const DepthSizes& z, const BackwardChunk& chunk, const NearBackward& n, void* stream) {
  if (z.tokens == 0) return cudaSuccess;
  if (near_refuses(z) != nullptr || n.sites > kChunk) return cudaErrorInvalidValue;
  return for_vectors(z, [&]<int V>() -> int {
    constexpr bool kHeld = V <= kMostHeld;
    const Scratch scratch = scratch_of(z, chunk.sites);
    char* const scratch_at = static_cast<char*>(chunk.scratch);
    NearBackwardPass a{};
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
        a.norm_rows = norm_blocks(z);
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
    // Fewer warps where the keys of many wide sites leave no room for their rings.
    for (int warps = kBackwardMostWarps<V>; warps > 1; warps /= 2) {
      const int64_t blocks = std::min(near_blocks(z.tokens, warps, kBackwardBlocks<V>), norm_blocks(z));
      const BackwardLayout<V> layout(a, warps, blocks);
      a.shape.depth =
          ring_depth(a.shape, blocks * warps, a.rows.count, (shared_of(kBackwardBlocks<V>) - layout.rings) / warps);
      if (a.shape.depth < std::min(a.rows.count, warps > 2 || kHeld ? 2 : 1)) continue;
      const int64_t shared = layout.rings + int64_t{warps} * a.shape.depth * a.shape.pitch;
      return launch_early(near_backward_kernel<V>, a, blocks, warps * 32, shared, stream);
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace mhar::kernels::hopper
