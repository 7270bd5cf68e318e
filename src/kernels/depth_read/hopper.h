#pragma once
// The Hopper implementation of depth_read.h: bf16 values, fp32 statistics, compute capability 9.0.
#include "kernels/depth_read/depth_read.h"

namespace mhar::kernels::hopper {

int far_forward_hopper(const DepthSizes& sizes, const FarForward& pass, void* queue);
int near_forward_hopper(const DepthSizes& sizes, const NearForward& pass, void* queue);
int near_backward_hopper(const DepthSizes& sizes, const BackwardChunk& chunk, const NearBackward& pass, void* queue);
int far_backward_hopper(const DepthSizes& sizes, const BackwardChunk& chunk, const FarBackward& pass, void* queue);
int chunk_gradients_hopper(const DepthSizes& sizes, const BackwardChunk& chunk, const ChunkGradients& pass,
                           void* queue);

/// Whether heads of these sizes fit into the blocks of the far backward pass.
bool far_backward_takes(const DepthSizes& sizes);

inline constexpr int kWidestSlice = 160;    ///< channels of a warp: 40 accumulator registers
inline constexpr int kMostSlices = 16;      ///< warps that share a token in a far forward pass
inline constexpr int kMostShared = 232448;  ///< bytes of shared memory a block can have
inline constexpr int kHalfShared = 115712;  ///< ... when two of them share a multiprocessor

/// Channels of one warp of the far passes: divides K, a multiple of 16; 0 where there is none. Eight warps of whole
/// tokens come first, then width.
constexpr int slice_width(const DepthSizes& z) {
  int best = 0;
  int64_t best_warps = 0;
  for (int width = kWidestSlice; width >= 16; width -= 16) {
    if (z.channels() % width != 0) continue;
    const int64_t slices = z.width / width;
    if (slices > kMostSlices) continue;
    const int64_t warps = slices >= 8 ? 8 : 8 / slices * slices;
    if (warps > best_warps) best = width, best_warps = warps;
  }
  return best;
}

}  // namespace mhar::kernels::hopper
