#include "kernels/cuda_status.h"
#include "kernels/depth_read/depth_read.h"

namespace mhar::kernels {
namespace {

constexpr DepthKernels absent(const char* name) {
  return {
      .name = name,
      .longest_chunk = kMostNear,
      .finishes = true,
      .refuses = [](const DepthSizes&, int64_t) { return "shape at all: this build has no CUDA kernels"; },
      .scratch_bytes = [](const DepthSizes&, int64_t, int64_t) { return int64_t{0}; },
      .far_forward = [](const DepthSizes&, const FarForward&, void*) { return not_built_with_cuda; },
      .near_forward = [](const DepthSizes&, const NearForward&, void*) { return not_built_with_cuda; },
      .near_backward = [](const DepthSizes&, const BackwardChunk&, const NearBackward&,
                          void*) { return not_built_with_cuda; },
      .far_backward = [](const DepthSizes&, const BackwardChunk&, const FarBackward&,
                         void*) { return not_built_with_cuda; },
      .chunk_gradients = [](const DepthSizes&, const BackwardChunk&, const ChunkGradients&,
                            void*) { return not_built_with_cuda; },
  };
}

}  // namespace

const DepthKernels& depth_kernels_cuda() {
  static constexpr DepthKernels kernels = absent("cuda");
  return kernels;
}

const DepthKernels& depth_kernels_hopper() {
  static constexpr DepthKernels kernels = absent("hopper");
  return kernels;
}

}  // namespace mhar::kernels
