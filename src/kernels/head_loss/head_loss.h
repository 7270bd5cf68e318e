#pragma once
// Cross entropy of rows of logits and its gradient in their place: Eq. 21 to 23 of docs/method.md. P rows (tokens of a
// chunk), V classes. Logits have the storage type; everything after them is fp32.
#include <cstdint>

#include "kernels/element.h"

namespace mhar::kernels {

struct HeadLossSizes {
  int64_t rows, classes;  ///< P >= 0, V >= 1; P * V may pass 2^31
  Element type;           ///< of the logits: f32 or bf16
};

/// A row whose target is negative is not counted: its loss, square and gradient are zeros, whatever its logits are. A
/// target of V or above, or a row that is not finite, gives a loss that is not finite.
struct HeadLoss {
  void* logits;              ///< [P, V]: read; then the gradient of `weight` x (loss + z lse^2), else undefined
  const int64_t* targets;    ///< [P]
  float* loss;               ///< [P]: lse - logit of the target, written
  float* squares = nullptr;  ///< [P]: lse^2, written where not null
  bool gradient = true;      ///< wanted
  double weight = 1.0, z_loss = 0.0;
  const float* scale = nullptr;  ///< one more factor of the weight, read where the kernel runs, or null
};

/// One implementation. The gradient is formed in fp32 and rounded once; at the target it is minus the sum of the other
/// probabilities, so that it keeps its digits where the target is nearly certain. Every run gives the same bits.
struct HeadLossKernels {
  /// Null if it takes this shape, otherwise why not, as the end of "... takes no ".
  const char* (*refuses)(const HeadLossSizes&);
  /// Returns 0, a cudaError_t of the launch, or not_built_with_cuda; allocates nothing and does not wait. `queue` is
  /// the cudaStream_t, or for the CPU a ParallelFor or null.
  int (*run)(const HeadLossSizes&, const HeadLoss&, void* queue);
};

const HeadLossKernels& head_loss_kernels_cpu();
/// Compute capability 8.0 and later.
const HeadLossKernels& head_loss_kernels_cuda();

}  // namespace mhar::kernels
