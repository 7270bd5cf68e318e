#pragma once
#include <cstdint>

#include "kernels/clip/clip.h"
#include "kernels/element.h"

namespace mhar::kernels {

/// How a bf16 parameter takes an update: Eq. 28 or Eq. 29 of docs/method.md.
enum class Rounding { nearest, stochastic };

/// Elements [begin, begin + count) of the flat buffers. Random bits belong to the absolute position, so any way of
/// cutting a buffer into ranges gives the same result.
struct AdamwSizes {
  int64_t begin, count;
};

/// What changes from one update to the next. It lies where the kernel runs and is read by it, so that a captured graph
/// can be replayed. Formed in double and rounded once: 1 - 0.999f in fp32 is off by 1e-5.
struct AdamwStep {
  float keep;        ///< 1 - rate decay
  float step;        ///< -rate / (1 - beta1^t)
  float root_scale;  ///< 1 / sqrt(1 - beta2^t)
  uint64_t update;   ///< t, from 1; counts the bits of stochastic rounding
};

AdamwStep adamw_step(double rate, double decay, double beta1, double beta2, int64_t update);

/// Base pointers of flat buffers with one element per parameter, and what stays over a training.
struct AdamwArguments {
  void* parameter;
  const void* gradient;       ///< may be a piece alone:
  int64_t gradient_from = 0;  ///< position of its first element, a multiple of 8
  void* moment1;
  void* moment2;
  /// Null, or fp32 copies of the parameters: these take the update and the parameter becomes the nearest value of its
  /// type to them; `rounding` is not used then.
  float* master = nullptr;
  Element parameter_type, gradient_type, moment_type;  ///< both moments have one type
  Rounding rounding = Rounding::nearest;               ///< of bf16 parameters
  double beta1, beta2, eps;
  uint64_t seed = 0;           ///< of the stochastic rounding
  const AdamwStep* step;       ///< where the kernel runs
  const Clip* clip = nullptr;  ///< the same; null: a factor of 1. Where it says stopped, nothing is written.
};

/// One AdamW update in one pass, Eq. 26 to 29: fp32 arithmetic, the moments used before they are rounded (to nearest)
/// to their type, one rounding of the parameter. CPU and CUDA give the same bits. Runs on the calling thread; callers
/// split ranges. The buffers must not overlap.
void adamw_cpu(const AdamwSizes& sizes, const AdamwArguments& arguments);

/// The same on a cudaStream_t, with device pointers. Returns 0, a cudaError_t of the launch, or not_built_with_cuda.
int adamw_cuda(const AdamwSizes& sizes, const AdamwArguments& arguments, void* stream);

}  // namespace mhar::kernels
