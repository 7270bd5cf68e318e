#include "kernels/pointwise/cuda_pack.cuh"
#include "kernels/qk_rope/qk_rope.h"

namespace mhar::kernels {
namespace {

using namespace pointwise;

// A group of lanes takes a head of a row. A lane holds vectors of the first half together with those of the second that
// they are turned with, so a turn needs no other lane. Single elements come four to a lane, which serves 256 channels.
constexpr int kThreads = 128;
constexpr int kResident = 5;  // blocks of the backward kernel on a multiprocessor, which leaves a thread 96 registers
template <int V>
constexpr int kPairs = V == 1 ? 4 : 1;

struct Groups {
  int lanes;  ///< a power of two
  int heads;  ///< groups of a block
};

Groups groups_of(const QkRopeSizes& z, int V) {
  int lanes = 1;
  while (lanes < 32 && lanes * V < z.head_dim / 2) lanes *= 2;
  return {lanes, kThreads / lanes};
}

/// The head of a group: a null pointer's offset is never used, since `active` is false then.
struct Head {
  bool active, query;
  int64_t row, index;  ///< index: of the head among queries and keys
};

__device__ Head head_of(const QkRopeSizes& z, const Groups& groups, int64_t first) {
  const int64_t all = z.heads + z.kv_heads, at = first + threadIdx.x / groups.lanes;
  const int64_t row = quotient(at, all), index = at - row * all;
  return {row < z.rows, index < z.heads, row, index};
}

template <typename T>
__device__ T* place_of(const QkRopeSizes& z, const QkHeads& heads, const Head& head) {
  return head.query ? static_cast<T*>(heads.queries) + head.row * heads.query_stride + head.index * z.head_dim
                    : static_cast<T*>(heads.keys) + head.row * heads.key_stride + (head.index - z.heads) * z.head_dim;
}

/// Calls body(i, j) for the pairs of vectors this lane holds: channels j .. j + V - 1 and those half a head behind.
template <int V, typename Body>
__device__ void each_pair(const QkRopeSizes& z, const Groups& groups, bool active, const Body& body) {
#pragma unroll
  for (int i = 0; i < kPairs<V>; ++i) {
    const int j = (i * groups.lanes + static_cast<int>(threadIdx.x) % groups.lanes) * V;
    if (active && j < z.head_dim / 2) body(i, j);
  }
}

__device__ float group_sum(const Groups& groups, float x) {
  for (int bit = 1; bit < groups.lanes; bit *= 2) x += __shfl_xor_sync(~0u, x, bit);
  return x;
}

// `turn`: 1, or -1 for the opposite angle.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads) forward_kernel(QkRopeSizes z, QkRopeForward f, Groups groups, float turn) {
  const Head head = head_of(z, groups, int64_t{blockIdx.x} * groups.heads);
  const T* x = place_of<const T>(z, f.input, head);
  const T* weight = static_cast<const T*>(head.query ? f.query_weight : f.key_weight);
  const int half = static_cast<int>(z.head_dim / 2);
  const int64_t position = head.row - quotient(head.row, z.positions) * z.positions;
  Pack<T, V> first[kPairs<V>], second[kPairs<V>];
  each_pair<V>(z, groups, head.active,
               [&](int i, int j) { first[i] = load<V>(x + j), second[i] = load<V>(x + half + j); });
  float rho = 1.0f;
  if (weight != nullptr) {
    float squares = 0.0f;
    each_pair<V>(z, groups, head.active, [&](int i, int) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float a = widen(first[i].at[v]), b = widen(second[i].at[v]);
        squares = fmaf(a, a, fmaf(b, b, squares));
      }
    });
    rho = 1.0f / sqrtf(group_sum(groups, squares) / static_cast<float>(z.head_dim) + static_cast<float>(z.eps));
    if (head.active && threadIdx.x % groups.lanes == 0) f.rho[head.row * (z.heads + z.kv_heads) + head.index] = rho;
  }
  T* y = place_of<T>(z, f.result, head);
  each_pair<V>(z, groups, head.active, [&](int i, int j) {
    float cosine[V], sine[V];
    load_floats(f.cosine + position * half + j, cosine);
    load_floats(f.sine + position * half + j, sine);
    Pack<T, V> gain1{}, gain2{};
    if (weight != nullptr) gain1 = load<V>(weight + j), gain2 = load<V>(weight + half + j);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      float a = widen(first[i].at[v]), b = widen(second[i].at[v]);
      if (weight != nullptr) {
        a = rounded<T>(rounded<T>(a * rho) * widen(gain1.at[v]));
        b = rounded<T>(rounded<T>(b * rho) * widen(gain2.at[v]));
      }
      const float s = turn * sine[v];
      first[i].at[v] = narrow<T>(a * cosine[v] - b * s);
      second[i].at[v] = narrow<T>(b * cosine[v] + a * s);
    }
    store(y + j, first[i]);
    store(y + half + j, second[i]);
  });
}

// Eq. 14 backwards, then Eq. 10. A group takes heads in strides of the grid and keeps its shares of both weights'
// gradients in registers; they meet in shared memory and leave as one row of `scratch` [blocks, 2k].
template <typename T, int V>
__global__ void __launch_bounds__(kThreads, kResident) backward_kernel(QkRopeSizes z, QkRopeBackward g, Groups groups) {
  extern __shared__ float sums[];  // [groups.heads, 2k]
  const int half = static_cast<int>(z.head_dim / 2), k = 2 * half;
  const int64_t all = z.heads + z.kv_heads, count = z.rows * all;
  float query_sums[kPairs<V>][2][V] = {}, key_sums[kPairs<V>][2][V] = {};
  for (int64_t start = int64_t{blockIdx.x} * groups.heads; start < count; start += int64_t{gridDim.x} * groups.heads) {
    const Head head = head_of(z, groups, start);
    const T *dy = place_of<const T>(z, g.gradient, head), *x = place_of<const T>(z, g.input, head);
    const T* weight = static_cast<const T*>(head.query ? g.query_weight : g.key_weight);
    const int64_t position = head.row - quotient(head.row, z.positions) * z.positions;
    Pack<T, V> value[kPairs<V>][2];
    float turned[kPairs<V>][2][V];
    each_pair<V>(z, groups, head.active, [&](int i, int j) {
      const Pack<T, V> first = load<V>(dy + j), second = load<V>(dy + half + j);
      value[i][0] = load<V>(x + j), value[i][1] = load<V>(x + half + j);
      float cosine[V], sine[V];
      load_floats(g.cosine + position * half + j, cosine);
      load_floats(g.sine + position * half + j, sine);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float a = widen(first.at[v]), b = widen(second.at[v]);
        turned[i][0][v] = a * cosine[v] + b * sine[v];
        turned[i][1][v] = b * cosine[v] - a * sine[v];
      }
    });
    const float rho = head.active ? g.rho[head.row * all + head.index] : 0.0f;
    float products = 0.0f;
    each_pair<V>(z, groups, head.active, [&](int i, int j) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const Pack<T, V> gain = load<V>(weight + side * half + j);
#pragma unroll
        for (int v = 0; v < V; ++v)
          products = fmaf(turned[i][side][v] * widen(gain.at[v]), widen(value[i][side].at[v]) * rho, products);
      }
    });
    const float along = group_sum(groups, products) / static_cast<float>(k);
    T* dx = place_of<T>(z, g.result, head);
    each_pair<V>(z, groups, head.active, [&](int i, int j) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        Pack<T, V> result = load<V>(weight + side * half + j);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float normalised = widen(value[i][side].at[v]) * rho, gradient = turned[i][side][v];
          const float share = gradient * normalised;
          query_sums[i][side][v] += head.query ? share : 0.0f;
          key_sums[i][side][v] += head.query ? 0.0f : share;
          result.at[v] = narrow<T>(rho * (gradient * widen(result.at[v]) - normalised * along));
        }
        store(dx + side * half + j, result);
      }
    });
  }
  float* own = sums + threadIdx.x / groups.lanes * 2 * k;
  each_pair<V>(z, groups, true, [&](int i, int j) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        own[side * half + j + v] = query_sums[i][side][v];
        own[k + side * half + j + v] = key_sums[i][side][v];
      }
    }
  });
  __syncthreads();
  for (int c = threadIdx.x; c < 2 * k; c += kThreads) {
    float sum = sums[c];
    for (int i = 1; i < groups.heads; ++i) sum += sums[i * 2 * k + c];
    static_cast<float*>(g.scratch)[int64_t{blockIdx.x} * 2 * k + c] = sum;
  }
}

const char* refuses(const QkRopeSizes& z) {
  if (!taken(z.type)) return kTypes;
  return z.head_dim % 2 == 0 && z.head_dim <= 256 ? nullptr : "head dimensions that are odd or above 256";
}

int64_t scratch_bytes(const QkRopeSizes& z) { return kMostPartials * 2 * z.head_dim * 4; }

bool whole_vectors(const QkRopeSizes& z, std::initializer_list<QkHeads> heads, std::initializer_list<const void*> all) {
  if (z.head_dim / 2 * bytes_of(z.type) % 16 != 0 || !aligned(all)) return false;
  for (const QkHeads& one : heads) {
    if (!aligned({one.queries, one.keys}) || (one.query_stride | one.key_stride) * bytes_of(z.type) % 16 != 0)
      return false;
  }
  return true;
}

int turn_heads(const QkRopeSizes& z, const QkRopeForward& f, float turn, void* queue) {
  if (z.rows == 0) return cudaSuccess;
  const bool whole = whole_vectors(z, {f.input, f.result}, {f.query_weight, f.key_weight, f.cosine, f.sine});
  return with_element(z.type, whole, [&]<typename T, int V>() -> int {
    const Groups groups = groups_of(z, V);
    const auto blocks = static_cast<unsigned>((z.rows * (z.heads + z.kv_heads) + groups.heads - 1) / groups.heads);
    forward_kernel<T, V><<<blocks, kThreads, 0, static_cast<cudaStream_t>(queue)>>>(z, f, groups, turn);
    return cudaGetLastError();
  });
}

int forward(const QkRopeSizes& z, const QkRopeForward& f, void* queue) { return turn_heads(z, f, 1.0f, queue); }

int backward(const QkRopeSizes& z, const QkRopeBackward& g, void* queue) {
  if (g.query_weight == nullptr) {
    QkRopeForward back{g.gradient, g.result, nullptr, nullptr, g.cosine, g.sine, nullptr};
    return turn_heads(z, back, -1.0f, queue);
  }
  const bool whole =
      whole_vectors(z, {g.gradient, g.input, g.result}, {g.query_weight, g.key_weight, g.cosine, g.sine});
  return with_element(z.type, whole, [&]<typename T, int V>() -> int {
    const Groups groups = groups_of(z, V);
    const int64_t items = (z.rows * (z.heads + z.kv_heads) + groups.heads - 1) / groups.heads;
    const int64_t blocks = persistent_blocks(items, kResident);
    if (z.rows > 0) {
      const size_t shared = groups.heads * 2 * z.head_dim * sizeof(float);
      backward_kernel<T, V>
          <<<static_cast<unsigned>(blocks), kThreads, shared, static_cast<cudaStream_t>(queue)>>>(z, g, groups);
      const int status = cudaGetLastError();
      if (status != cudaSuccess) return status;
    }
    return sum_columns(z.type,
                       {static_cast<const float*>(g.scratch), blocks, z.head_dim, g.query_weight_gradient, z.head_dim,
                        g.key_weight_gradient},
                       queue);
  });
}

}  // namespace

const QkRopeKernels& qk_rope_kernels_cuda() {
  static const QkRopeKernels kernels{refuses, scratch_bytes, forward, backward};
  return kernels;
}

}  // namespace mhar::kernels
