// Near pass of the forward, Eq. 38, in one pass over the parts: sources, what the far pass left, the null source.
#include "kernels/depth_read/hopper.h"
#include "kernels/depth_read/hopper_near.h"
#include "kernels/depth_read/hopper_near_dots.h"
#include "kernels/depth_read/hopper_ring.h"
#include "kernels/depth_read/hopper_scratch.h"

namespace mhar::kernels::hopper {
namespace {

struct Forward {
  RowShape shape;
  Rows rows;  // sources, partial mix, stream
  int count;  // sources
  float* rho[kChunk];
  bool newest, partial;
  float eps;
  const float* key;
  void* mix;
  float* lse;
  const float* null_logits;
  const void* null_value;
  const void* stream;
  const float* gate;
  const void* weight;
  void* output;
  float* norm_rho;
};

// Statistics of one token in shared memory, fetched while the token before it is worked on.
constexpr int kRhos = 0, kPartialLse = kChunk, kStatistics = kChunk + 32;

// Where each part of a block's shared memory begins; the rings are last.
struct Layout {
  int statistics, weight, null_value, key, rings;

  __host__ __device__ Layout(const Forward& a, int warps) {
    const int pitch = a.shape.pitch;
    statistics = warps * kMostDepth * 8;
    weight = statistics + warps * 2 * kStatistics * 4;
    null_value = weight + (a.weight != nullptr ? pitch : 0);
    key = null_value + (a.null_value != nullptr ? pitch : 0);
    rings = key + (a.key != nullptr ? 2 * pitch : 0);
  }
};

/// Blocks of a multiprocessor: 16 warps leave 128 registers to a lane, 24 warps 80.
template <int V>
inline constexpr int kForwardBlocks = V <= 2 ? 3 : 2;

/// Up to this many vectors the key is in registers.
inline constexpr int kMostKeyHeld = 3;

template <int V>
struct Mix {
  static constexpr float kHeadroom = 8;  // natural units

  float largest = -INFINITY, sum = 0;  // sum of exp(logit - largest); largest may be too small by kHeadroom
  float value[V][8];

  __device__ Mix() {  // from minus zero: one part alone comes back to the last bit
#pragma unroll
    for (int j = 0; j < V; ++j) {
#pragma unroll
      for (int q = 0; q < 8; ++q) value[j][q] = -0.0f;
    }
  }

  /// Weight of a part. What is summed already is scaled anew only where a logit exceeds the largest by so much that
  /// fp32 might suffer: a new maximum by itself costs nothing.
  __device__ float weigh(float logit) {
    if (__any_sync(~0u, logit > largest + kHeadroom)) {
      const float larger = fmaxf(largest, logit);
      const float scale = exp2_fast((largest - larger) * kLog2OfE);
      largest = larger, sum *= scale;
#pragma unroll
      for (int j = 0; j < V; ++j) {
#pragma unroll
        for (int q = 0; q < 8; ++q) value[j][q] *= scale;
      }
    }
    const float weight = exp2_fast((logit - largest) * kLog2OfE);
    sum += weight;
    return weight;
  }

  /// Joins a row whose logarithm of the denominator is known.
  __device__ void join(float logit, uint32_t row, const Places<V>& places) {
    const float weight = weigh(logit);
#pragma unroll
    for (int j = 0; j < V; ++j) add_scaled(value[j], weight, load_shared_16(row + places.at[j]));
  }
};

template <int V>
__global__ void __launch_bounds__(kWarps<V> * 32, kForwardBlocks<V>)
    near_forward_kernel(const __grid_constant__ Forward a) {
  if (!kOnHopper) return;
  extern __shared__ __align__(128) unsigned char memory[];
  const uint32_t base = shared_address(memory);
  const RowShape& shape = a.shape;
  const Layout layout(a, kWarps<V>);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0), lane = static_cast<int>(threadIdx.x) % 32;
  const Places<V> places(shape);
  const HeadSums sums(places.lanes);
  const int64_t first = int64_t{blockIdx.x} * kWarps<V> + warp, step = int64_t{gridDim.x} * kWarps<V>;
  Ring ring(a.rows, shape, shape.depth, first, step, base + layout.rings + warp * shape.depth * shape.pitch,
            base + warp * kMostDepth * 8);
  // All that a block needs is sent for before anything is waited for: a pass is not much longer than a trip to memory.
  ring.begin(false);
  if (a.key != nullptr) fetch_key(base + layout.key, a.key, shape);
  if (a.weight != nullptr) fetch_row(base + layout.weight, a.weight, shape);
  wait_for_previous_kernel();
  allow_next_kernel();
  ring.begin(true);

  const uint32_t statistics = base + layout.statistics + warp * 2 * kStatistics * 4;
  const float* my_rho = lane < a.count - (a.newest ? 1 : 0) ? a.rho[lane] : nullptr;
  const auto fetch = [&](int64_t token, int buffer) {
    if (token >= shape.tokens) return;
    const uint32_t to = statistics + (buffer * kStatistics + lane) * 4;
    if (my_rho != nullptr) async_load<4>(to + kRhos * 4, my_rho + token);
    if (a.partial && lane < shape.heads) async_load<4>(to + kPartialLse * 4, a.lse + token * shape.heads + lane);
  };
  fetch(first, 0);
  if (a.null_value != nullptr) fetch_row(base + layout.null_value, a.null_value, shape);
  const float null_logit = a.null_logits != nullptr ? a.null_logits[places.head] : 0.0f;
  const float gate = a.stream != nullptr ? *a.gate : 0.0f;
  async_wait_all();
  if (a.key != nullptr) split_key<Pairing::neighbours>(base + layout.key, base + layout.key, shape);
  __syncthreads();
  constexpr bool kHeld = V <= kMostHeld, kKeyHeld = V <= kMostKeyHeld;
  uint4 key[kKeyHeld ? V : 1][2];
  if (kKeyHeld && a.key != nullptr) {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      key[kKeyHeld ? j : 0][0] = load_shared_16(base + layout.key + places.at[j]);
      key[kKeyHeld ? j : 0][1] = load_shared_16(base + layout.key + shape.pitch + places.at[j]);
    }
  }

  int buffer = 0;
  for (int64_t token = first; token < shape.tokens; token += step, buffer ^= 1) {
    async_wait_all();
    __syncwarp();
    fetch(token + step, buffer ^ 1);
    const uint32_t known = statistics + buffer * kStatistics * 4;

    Mix<V> mix;
#pragma unroll 1
    for (int i = 0; i < a.count; ++i) {
      const uint32_t row = ring.take();
      uint4 packed[kHeld ? V : 1];
      // Whether heads share four lanes is a constant of the copy: masks cost as much as the tensor cores save.
      const auto dot_of = [&](auto shared_lanes, bool mine) {
        float dot[2][4] = {};
#pragma unroll
        for (int j = 0; j < V; ++j) {
          uint4& vector = packed[kHeld ? j : 0];
          vector = load_shared_16(row + places.at[j]);
          const uint4 source = decltype(shared_lanes)::value ? masked(vector, mine) : vector;
          const uint32_t at = base + layout.key + places.at[j];
          multiply(dot[0], kKeyHeld ? key[kKeyHeld ? j : 0][0] : load_shared_16(at), source.x, source.y);
          multiply(dot[1], kKeyHeld ? key[kKeyHeld ? j : 0][1] : load_shared_16(at + shape.pitch), source.z, source.w);
        }
        return sums.of_both(dot[0], dot[1]);
      };
      float dot = 0;
      if (places.lanes >= 4) {
        dot = dot_of(std::false_type{}, true);
      } else {
#pragma unroll 1
        for (int turn = 0; turn < sums.turns(); ++turn) {
          const float found = dot_of(std::true_type{}, sums.my_turn(turn));
          if (sums.my_turn(turn)) dot = found;
        }
      }
      float rho;
      if (a.newest && i == a.count - 1) {  // Eq. 1
        float squares = 0;
#pragma unroll
        for (int j = 0; j < V; ++j) {
          squares = add_squares(squares, kHeld ? packed[kHeld ? j : 0] : load_shared_16(row + places.at[j]));
          if (!kHeld) __syncwarp();  // here and below: keeps ptxas from loading all vectors at once and spilling
        }
        rho = rsqrtf(sum_over_lanes<32>(squares) / static_cast<float>(shape.width) + a.eps);
        if (lane == 0) a.rho[i][token] = rho;
      } else {
        rho = load_shared(known + (kRhos + i) * 4);
      }
      const float logit = dot * rho;
      if (kHeld) {
        ring.give();
        const float weight = mix.weigh(logit);
#pragma unroll
        for (int j = 0; j < V; ++j) add_scaled(mix.value[j], weight, packed[kHeld ? j : 0]);
      } else {
        mix.join(logit, row, places);
        ring.give();
      }
    }
    if (a.partial) {
      mix.join(load_shared(known + (kPartialLse + places.head) * 4), ring.take(), places);
      ring.give();
    }
    if (a.null_value != nullptr) mix.join(null_logit, base + layout.null_value, places);
    if (places.sub == 0) {
      a.lse[token * shape.heads + places.head] = mix.largest + kLnOf2 * __log2f(mix.sum);
    }

    const float inverse = 1.0f / mix.sum;
    const int64_t offset = token * shape.bytes;
    char* mix_row = static_cast<char*>(a.mix) + offset;
    uint4 x[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
#pragma unroll
      for (int q = 0; q < 8; ++q) mix.value[j][q] *= inverse;
      x[j] = pack(mix.value[j]);
      if (places.at[j] < shape.bytes) store_16(mix_row, places.at[j], x[j]);
    }
    if (a.stream != nullptr) {
      const uint32_t row = ring.take();
#pragma unroll
      for (int j = 0; j < V; ++j) x[j] = gated(load_shared_16(row + places.at[j]), gate, x[j]);
      ring.give();
    }
    if (a.weight == nullptr) continue;

    float squares = 0;  // Eq. 9
#pragma unroll
    for (int j = 0; j < V; ++j) {
      squares = add_squares(squares, x[j]);
      if (V > kMostHeld) forget(x[j]);
    }
    const float norm_rho = rsqrtf(sum_over_lanes<32>(squares) / static_cast<float>(shape.width) + a.eps);
    if (lane == 0) a.norm_rho[token] = norm_rho;
    char* output_row = static_cast<char*>(a.output) + offset;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const uint4 normed = scaled(x[j], norm_rho);
      const uint4 weight = load_shared_16(base + layout.weight + places.at[j]);
      if (places.at[j] < shape.bytes) store_16(output_row, places.at[j], product(normed, weight));
    }
  }
}

}  // namespace

const char* near_refuses(const DepthSizes& z) {
  if (z.type != Element::bf16) return "values other than bf16";
  if (z.heads > 32 || (z.heads & (z.heads - 1)) != 0) return "number of heads other than 1, 2, 4, 8, 16 and 32";
  if (z.channels() % 8 != 0) return "head whose width is not a multiple of 8";
  if (z.channels() > 16 * 8 * 32 / z.heads) return "width above 4096";
  return nullptr;
}

int near_forward_hopper(const DepthSizes& z, const NearForward& n, void* stream) {
  if (z.tokens == 0) return cudaSuccess;
  if (near_refuses(z) != nullptr || n.count > kChunk) return cudaErrorInvalidValue;
  return for_vectors(z, [&]<int V>() -> int {
    const int64_t blocks = near_blocks(z.tokens, kWarps<V>, kForwardBlocks<V>);
    Forward a{};
    a.shape = row_shape(z);
    a.count = static_cast<int>(n.count);
    for (int i = 0; i < a.count; ++i) {
      a.rows.add(n.sources[i], i == a.count - 1);
      a.rho[i] = static_cast<float*>(n.rho[i]);
    }
    if (n.partial) a.rows.add(n.mix, true);
    a.newest = n.newest, a.partial = n.partial, a.eps = static_cast<float>(z.eps);
    a.key = a.count > 0 ? static_cast<const float*>(n.key) : nullptr;
    a.mix = n.mix, a.lse = static_cast<float*>(n.lse);
    a.null_logits = static_cast<const float*>(n.null_logits), a.null_value = n.null_value;
    if (n.norm.weight != nullptr) {
      a.weight = n.norm.weight, a.output = n.norm.output, a.norm_rho = static_cast<float*>(n.norm.rho);
      a.stream = n.stream, a.gate = static_cast<const float*>(n.gate);
      if (n.stream != nullptr) a.rows.add(n.stream, true);
    }
    const Layout layout(a, kWarps<V>);
    const int64_t room = shared_of(kForwardBlocks<V>) - layout.rings;
    a.shape.depth = ring_depth(a.shape, blocks * kWarps<V>, a.rows.count, room / kWarps<V>);
    const int64_t shared = layout.rings + int64_t{kWarps<V>} * a.shape.depth * a.shape.pitch;
    return launch_early(near_forward_kernel<V>, a, blocks, kWarps<V> * 32, shared, stream);
  });
}

}  // namespace mhar::kernels::hopper
