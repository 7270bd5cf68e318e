#pragma once
// The RMSNorm behind a read and the gated stream in front of it, Eq. 9 and 42.
#include "kernels/depth_read/cuda_common.cuh"

namespace mhar::kernels::portable {

/// The norm's input at one token: o, or stream + gate * o rounded once.
template <typename T>
struct NormInput {
  const T* mix;     ///< the token's row
  const T* stream;  ///< the token's row, or null
  float gate;

  __device__ NormInput(const void* mixes, const void* streams, const void* gates, int64_t row)
      : mix(static_cast<const T*>(mixes) + row),
        stream(streams == nullptr ? nullptr : static_cast<const T*>(streams) + row),
        gate(streams == nullptr ? 1.0f : *static_cast<const float*>(gates)) {}

  /// o to x, for V channels from c.
  template <int V>
  __device__ void combine(int c, float (&x)[V]) const {
    if (stream == nullptr) return;
    float h[V];
    load(stream + c, h);
#pragma unroll
    for (int v = 0; v < V; ++v) x[v] = gate == 0.0f ? h[v] : rounded<T>(fmaf(gate, x[v], h[v]));
  }

  template <int V>
  __device__ void load_at(int c, float (&x)[V]) const {
    load(mix + c, x);
    combine(c, x);
  }
};

/// y and rho of token p, whose mix the block has written. `squares`: this thread's share of the sum of x^2.
template <typename T, int V>
__device__ void finish_norm(const DepthSizes& z, const DepthNorm& norm, const NormInput<T>& input, int64_t p,
                            float squares, float* spare) {
  const float rho = inverse_rms(z, block_sum(squares, spare));
  if (threadIdx.x == 0) static_cast<float*>(norm.rho)[p] = rho;
  T* output = static_cast<T*>(norm.output) + p * z.width;
  for (int c = threadIdx.x * V; c < z.width; c += kThreads * V) {
    float x[V], weight[V];
    input.load_at(c, x);
    load(static_cast<const T*>(norm.weight) + c, weight);
#pragma unroll
    for (int v = 0; v < V; ++v) x[v] = rounded<T>(x[v] * rho) * weight[v];
    store(output + c, x);
  }
}

/// rho of a source at one token, Eq. 1.
template <typename T, int V>
__device__ float newest_rho(const DepthSizes& z, const T* row, float* spare) {
  float squares = 0.0f;
  for (int c = threadIdx.x * V; c < z.width; c += kThreads * V) {
    float x[V];
    load(row + c, x);
    squares += product(x, x);
  }
  return inverse_rms(z, block_sum(squares, spare));
}

}  // namespace mhar::kernels::portable
