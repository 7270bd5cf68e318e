#pragma once
// The global norm of a flat gradient and what an update needs to know of it: Eq. 25 of docs/method.md.
#include <cstdint>

#include "kernels/element.h"

namespace mhar::kernels {

/// What the update reads where it runs (kernels/adamw/adamw.h).
struct Clip {
  float norm;       ///< of this gradient, before clipping
  float factor;     ///< Eq. 25
  int32_t stopped;  ///< 1 from the first norm or loss on that is not finite: no update is made any more
};

/// A piece of the gradient.
struct ClipPiece {
  const void* gradient;  ///< [count]
  Element type;          ///< of it: f32 or bf16
  int64_t count;
  float* partials;  ///< [clip_ranges(count)], written
};

struct ClipArguments {
  const float* partials;  ///< [ranges] of all pieces
  int64_t ranges;
  const float* losses = nullptr;  ///< [microbatches] of the same update, or null
  int64_t microbatches = 0;
  double limit;  ///< c
  Clip* clip;    ///< `stopped` read and written, the others written
};

/// Ranges that a piece is cut into, at most 1024, each summed on its own. How many and where they end is a function of
/// the count alone, and they are added in order: the norm has the same bits on every run and for any number of threads.
int64_t clip_ranges(int64_t count);

/// First the squares of each piece, then the norm over all. Squares and sums are fp32, so a gradient of 1e20 has an
/// infinite norm. They return 0, a cudaError_t of the launch, or not_built_with_cuda; allocate nothing and do not wait.
/// `queue` is the cudaStream_t, or for the CPU a ParallelFor or null.
int clip_squares_cpu(const ClipPiece& piece, void* queue);
int clip_squares_cuda(const ClipPiece& piece, void* queue);
int clip_cpu(const ClipArguments& arguments, void* queue);
int clip_cuda(const ClipArguments& arguments, void* queue);

}  // namespace mhar::kernels
