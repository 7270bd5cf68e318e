#include "kernels/norm/norm.h"
#include "kernels/pointwise/cuda_pack.cuh"

namespace mhar::kernels {
namespace {

using namespace pointwise;

// A row belongs to a team of 1, 2 or 4 warps, whose lanes hold at most kHeld of its elements each in registers: the row
// is read once. A block has four warps, so narrow rows come several to a block.
constexpr int kThreads = 128;
constexpr int kHeld = 32;
constexpr int64_t kWidest = int64_t{kThreads} * kHeld;
constexpr int kResident = 3;  // blocks of the backward kernel on a multiprocessor, which leaves a thread 168 registers

struct Teams {
  int lanes;  ///< threads of a team
  int rows;   ///< teams of a block
};

Teams teams_of(const NormSizes& z) {
  const int warps = z.width <= 32 * kHeld ? 1 : z.width <= 64 * kHeld ? 2 : 4;
  return {32 * warps, kThreads / 32 / warps};
}

/// Sum over a team, the same bits in each thread. `spare` holds a float for each warp and is used again only after
/// another barrier.
__device__ float team_sum(const Teams& teams, float x, float* spare) {
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) x += __shfl_xor_sync(~0u, x, bit);
  if (teams.lanes == 32) return x;
  if (threadIdx.x % 32 == 0) spare[threadIdx.x / 32] = x;
  __syncthreads();
  const int first = threadIdx.x / teams.lanes * (teams.lanes / 32);
  float sum = spare[first];
  for (int warp = 1; warp < teams.lanes / 32; ++warp) sum += spare[first + warp];
  return sum;
}

/// Calls body(i, c) for the vectors that this lane holds of a row, c being the channel of the first element. Unrolled,
/// so that what is indexed by i stays in registers.
template <int V, typename Body>
__device__ void each_held(const NormSizes& z, const Teams& teams, bool active, const Body& body) {
  const int lane = threadIdx.x % teams.lanes;
#pragma unroll
  for (int i = 0; i < kHeld / V; ++i) {
    const int c = (i * teams.lanes + lane) * V;
    if (active && c < z.width) body(i, c);
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads) norm_forward_kernel(NormSizes z, NormForward f, Teams teams) {
  __shared__ float spare[kThreads / 32];
  const int64_t row = int64_t{blockIdx.x} * teams.rows + threadIdx.x / teams.lanes, offset = row * z.width;
  const bool active = row < z.rows;
  const T *x = static_cast<const T*>(f.x) + offset, *weight = static_cast<const T*>(f.weight);
  Pack<T, V> held[kHeld / V];
  each_held<V>(z, teams, active, [&](int i, int c) { held[i] = load<V>(x + c); });
  if (f.output != nullptr) {
    const T* output = static_cast<const T*>(f.output) + offset;
    Pack<T, V> added[kHeld / V];
    each_held<V>(z, teams, active, [&](int i, int c) { added[i] = load<V>(output + c); });
    T* sum = static_cast<T*>(f.sum) + offset;
    each_held<V>(z, teams, active, [&](int i, int c) {
#pragma unroll
      for (int v = 0; v < V; ++v) held[i].at[v] = narrow<T>(widen(held[i].at[v]) + widen(added[i].at[v]));
      store(sum + c, held[i]);
    });
  }
  float squares = 0.0f;
  each_held<V>(z, teams, active, [&](int i, int) {
#pragma unroll
    for (int v = 0; v < V; ++v) squares = fmaf(widen(held[i].at[v]), widen(held[i].at[v]), squares);
  });
  const float mean = team_sum(teams, squares, spare) / static_cast<float>(z.width);
  const float rho = 1.0f / sqrtf(mean + static_cast<float>(z.eps));
  if (active && threadIdx.x % teams.lanes == 0) f.rho[row] = rho;
  T* normed = static_cast<T*>(f.normed) + offset;
  each_held<V>(z, teams, active, [&](int i, int c) {
    Pack<T, V> scaled = load<V>(weight + c);
#pragma unroll
    for (int v = 0; v < V; ++v) scaled.at[v] = narrow<T>(rounded<T>(widen(held[i].at[v]) * rho) * widen(scaled.at[v]));
    store(normed + c, scaled);
  });
}

// Eq. 10. A block takes rows in strides of the grid and keeps the weight's gradient of its rows in registers; the sums
// of its teams meet in shared memory and leave as one row of `scratch` [blocks, D].
template <typename T, int V>
__global__ void __launch_bounds__(kThreads, kResident) norm_backward_kernel(NormSizes z, NormBackward b, Teams teams) {
  extern __shared__ float team_sums[];  // [teams.rows, D] where there are several
  __shared__ float spare[2][kThreads / 32];
  const int team = threadIdx.x / teams.lanes;
  const T* weight = static_cast<const T*>(b.weight);
  float weight_gradient[kHeld / V][V] = {};
  int turn = 0;
  for (int64_t first = int64_t{blockIdx.x} * teams.rows; first < z.rows; first += int64_t{gridDim.x} * teams.rows) {
    const int64_t row = first + team, offset = row * z.width;
    const bool active = row < z.rows;
    const T *dy = static_cast<const T*>(b.normed_gradient) + offset, *x = static_cast<const T*>(b.x) + offset;
    const T* other = b.sum_gradient == nullptr ? nullptr : static_cast<const T*>(b.sum_gradient) + offset;
    Pack<T, V> gradient[kHeld / V], value[kHeld / V], added[kHeld / V];
    each_held<V>(z, teams, active, [&](int i, int c) { gradient[i] = load<V>(dy + c), value[i] = load<V>(x + c); });
    if (other != nullptr) each_held<V>(z, teams, active, [&](int i, int c) { added[i] = load<V>(other + c); });
    const float rho = active ? b.rho[row] : 0.0f;
    float products = 0.0f;
    each_held<V>(z, teams, active, [&](int i, int c) {
      const Pack<T, V> w = load<V>(weight + c);
#pragma unroll
      for (int v = 0; v < V; ++v)
        products = fmaf(widen(gradient[i].at[v]) * widen(w.at[v]), widen(value[i].at[v]) * rho, products);
    });
    const float along = team_sum(teams, products, spare[turn]) / static_cast<float>(z.width);
    turn ^= 1;
    T* dx = static_cast<T*>(b.x_gradient) + offset;
    each_held<V>(z, teams, active, [&](int i, int c) {
      Pack<T, V> result = load<V>(weight + c);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float dyv = widen(gradient[i].at[v]), normalised = widen(value[i].at[v]) * rho;
        float total = rho * (dyv * widen(result.at[v]) - normalised * along);
        if (other != nullptr) total += widen(added[i].at[v]);
        weight_gradient[i][v] = fmaf(dyv, normalised, weight_gradient[i][v]);
        result.at[v] = narrow<T>(total);
      }
      store(dx + c, result);
    });
  }
  float* partial = static_cast<float*>(b.scratch) + blockIdx.x * z.width;
  float* own = teams.rows == 1 ? partial : team_sums + team * z.width;
  each_held<V>(z, teams, true, [&](int i, int c) {
#pragma unroll
    for (int v = 0; v < V; ++v) own[c + v] = weight_gradient[i][v];
  });
  if (teams.rows == 1) return;
  __syncthreads();
  for (int c = threadIdx.x; c < z.width; c += kThreads) {
    float sum = team_sums[c];
    for (int i = 1; i < teams.rows; ++i) sum += team_sums[i * z.width + c];
    partial[c] = sum;
  }
}

const char* refuses(const NormSizes& z) {
  if (!taken(z.type)) return kTypes;
  return z.width <= kWidest ? nullptr : "rows of more than 4096 elements";
}

int64_t scratch_bytes(const NormSizes& z) { return kMostPartials * z.width * 4; }

bool whole_vectors(const NormSizes& z, std::initializer_list<const void*> all) {
  return z.width * bytes_of(z.type) % 16 == 0 && aligned(all);
}

int forward(const NormSizes& z, const NormForward& f, void* queue) {
  if (z.rows == 0) return cudaSuccess;
  const Teams teams = teams_of(z);
  const auto blocks = static_cast<unsigned>((z.rows + teams.rows - 1) / teams.rows);
  const bool whole = whole_vectors(z, {f.x, f.output, f.weight, f.sum, f.normed});
  return with_element(z.type, whole, [&]<typename T, int V>() -> int {
    norm_forward_kernel<T, V><<<blocks, kThreads, 0, static_cast<cudaStream_t>(queue)>>>(z, f, teams);
    return cudaGetLastError();
  });
}

int backward(const NormSizes& z, const NormBackward& b, void* queue) {
  const Teams teams = teams_of(z);
  const int64_t blocks = persistent_blocks((z.rows + teams.rows - 1) / teams.rows, kResident);
  const size_t shared = teams.rows == 1 ? 0 : teams.rows * z.width * sizeof(float);
  const bool whole = whole_vectors(z, {b.normed_gradient, b.sum_gradient, b.x, b.weight, b.x_gradient});
  if (z.rows > 0) {
    const int status = with_element(z.type, whole, [&]<typename T, int V>() -> int {
      norm_backward_kernel<T, V>
          <<<static_cast<unsigned>(blocks), kThreads, shared, static_cast<cudaStream_t>(queue)>>>(z, b, teams);
      return cudaGetLastError();
    });
    if (status != cudaSuccess) return status;
  }
  return sum_columns(z.type, {static_cast<const float*>(b.scratch), blocks, z.width, b.weight_gradient}, queue);
}

}  // namespace

const NormKernels& norm_kernels_cuda() {
  static const NormKernels kernels{refuses, scratch_bytes, forward, backward};
  return kernels;
}

}  // namespace mhar::kernels
