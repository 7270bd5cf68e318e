#include "kernels/pointwise/cuda_pack.cuh"
#include "kernels/swiglu/swiglu.h"

namespace mhar::kernels {
namespace {

using namespace pointwise;

constexpr int kThreads = 256;

// In bf16 the arithmetic of an exact exponential and division would take longer than the memory does; the fast ones are
// 2^13 times finer than the type. An infinite exponential gives 0, as it should.
template <typename T>
__device__ float sigmoid(float x) {
  if constexpr (sizeof(T) == 4) {
    return 1.0f / (1.0f + expf(-x));
  } else {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + quick_exp(-x)));
    return y;
  }
}

/// Where a thread's vector lies, in elements.
struct Place {
  bool inside;
  int64_t gate, inner;
};

template <int V>
__device__ Place place_of(const SwigluSizes& z) {
  const int64_t vectors = z.inner / V, index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = quotient(index, vectors), c = (index - row * vectors) * V;
  return {row < z.rows, row * 2 * z.inner + c, row * z.inner + c};
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads) swiglu_forward_kernel(SwigluSizes z, SwigluForward f) {
  const Place place = place_of<V>(z);
  if (!place.inside) return;
  const T* gate = static_cast<const T*>(f.gate_up) + place.gate;
  Pack<T, V> a = load<V>(gate);
  const Pack<T, V> b = load<V>(gate + z.inner);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float x = widen(a.at[v]);
    a.at[v] = narrow<T>(rounded<T>(x * sigmoid<T>(x)) * widen(b.at[v]));
  }
  store(static_cast<T*>(f.inner) + place.inner, a);
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads) swiglu_backward_kernel(SwigluSizes z, SwigluBackward g) {
  const Place place = place_of<V>(z);
  if (!place.inside) return;
  const T* gate = static_cast<const T*>(g.gate_up) + place.gate;
  Pack<T, V> a = load<V>(gate), b = load<V>(gate + z.inner);
  Pack<T, V> u = load<V>(static_cast<const T*>(g.inner_gradient) + place.inner);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float x = widen(a.at[v]), y = widen(b.at[v]), gradient = widen(u.at[v]);
    const float c = sigmoid<T>(x), silu = rounded<T>(x * c);
    a.at[v] = narrow<T>(gradient * y * c * fmaf(x, 1.0f - c, 1.0f));
    b.at[v] = narrow<T>(gradient * silu);
    u.at[v] = narrow<T>(silu * y);
  }
  T* result = static_cast<T*>(g.gate_up_gradient) + place.gate;
  store(result, a);
  store(result + z.inner, b);
  if (g.inner != nullptr) store(static_cast<T*>(g.inner) + place.inner, u);
}

const char* refuses(const SwigluSizes& z) { return taken(z.type) ? nullptr : kTypes; }

/// Launches `run.operator()<T, V>(blocks)`.
template <typename Run>
int launch(const SwigluSizes& z, std::initializer_list<const void*> all, const Run& run) {
  if (z.rows == 0) return cudaSuccess;
  const bool whole = z.inner * bytes_of(z.type) % 16 == 0 && aligned(all);
  return with_element(z.type, whole, [&]<typename T, int V>() -> int {
    const int64_t vectors = z.rows * (z.inner / V);
    run.template operator()<T, V>(static_cast<unsigned>((vectors + kThreads - 1) / kThreads));
    return cudaGetLastError();
  });
}

int forward(const SwigluSizes& z, const SwigluForward& f, void* queue) {
  return launch(z, {f.gate_up, f.inner}, [&]<typename T, int V>(unsigned blocks) {
    swiglu_forward_kernel<T, V><<<blocks, kThreads, 0, static_cast<cudaStream_t>(queue)>>>(z, f);
  });
}

int backward(const SwigluSizes& z, const SwigluBackward& b, void* queue) {
  return launch(z, {b.gate_up, b.inner_gradient, b.gate_up_gradient, b.inner}, [&]<typename T, int V>(unsigned blocks) {
    swiglu_backward_kernel<T, V><<<blocks, kThreads, 0, static_cast<cudaStream_t>(queue)>>>(z, b);
  });
}

}  // namespace

const SwigluKernels& swiglu_kernels_cuda() {
  static const SwigluKernels kernels{refuses, forward, backward};
  return kernels;
}

}  // namespace mhar::kernels
