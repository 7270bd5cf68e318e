#pragma once
#include "kernels/depth_read/depth_read.h"

namespace mhar::kernels {

/// The passes of depth_read.h for P >= 1 tokens, compiled for one level of instructions.
struct CpuPasses {
  void (*far_forward)(const DepthSizes&, const FarForward&, void* queue);
  void (*near_forward)(const DepthSizes&, const NearForward&, void* queue);
  void (*near_backward)(const DepthSizes&, const BackwardChunk&, const NearBackward&, void* queue);
  void (*far_backward)(const DepthSizes&, const BackwardChunk&, const FarBackward&, void* queue);
  void (*chunk_gradients)(const DepthSizes&, const BackwardChunk&, const ChunkGradients&, void* queue);
};

// cmake/Kernels.cmake gives the first two their instruction sets where the processor is an x86-64.
extern const CpuPasses cpu_passes_avx512, cpu_passes_avx2, cpu_passes_any;

}  // namespace mhar::kernels
