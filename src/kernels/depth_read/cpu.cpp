#include "kernels/depth_read/cpu_passes.h"
#include "kernels/depth_read/cpu_scratch.h"

namespace mhar::kernels {
namespace {

const CpuPasses& choose() {
#if defined(__x86_64__)
  // What the two levels x86-64-v3 and v4 are told apart by; clang knows no name for the levels here.
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v3 && v4) return cpu_passes_avx512;
  if (v3) return cpu_passes_avx2;
#endif
  return cpu_passes_any;
}

const CpuPasses& passes() {
  static const CpuPasses& chosen = choose();
  return chosen;
}

const char* refuses(const DepthSizes&, int64_t) { return nullptr; }

int far_forward(const DepthSizes& sizes, const FarForward& pass, void* queue) {
  if (sizes.tokens > 0) passes().far_forward(sizes, pass, queue);
  return 0;
}
int near_forward(const DepthSizes& sizes, const NearForward& pass, void* queue) {
  if (sizes.tokens > 0) passes().near_forward(sizes, pass, queue);
  return 0;
}
int near_backward(const DepthSizes& sizes, const BackwardChunk& chunk, const NearBackward& pass, void* queue) {
  if (sizes.tokens > 0) passes().near_backward(sizes, chunk, pass, queue);
  return 0;
}
int far_backward(const DepthSizes& sizes, const BackwardChunk& chunk, const FarBackward& pass, void* queue) {
  if (sizes.tokens > 0) passes().far_backward(sizes, chunk, pass, queue);
  return 0;
}
int chunk_gradients(const DepthSizes& sizes, const BackwardChunk& chunk, const ChunkGradients& pass, void* queue) {
  if (sizes.tokens > 0) passes().chunk_gradients(sizes, chunk, pass, queue);
  return 0;
}

}  // namespace

const DepthKernels& depth_kernels_cpu() {
  static const DepthKernels kernels{"cpu",       kMostNear,    true,          refuses,      CpuScratch::bytes,
                                    far_forward, near_forward, near_backward, far_backward, chunk_gradients};
  return kernels;
}

}  // namespace mhar::kernels
