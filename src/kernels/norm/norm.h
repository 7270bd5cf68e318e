#pragma once
// RMSNorm of rows, alone or fused with the addition to a residual stream in front of it: Eq. 9, 10 and 32 of
// docs/method.md. P rows (tokens), D width. Values have the storage type; statistics and sums are fp32. Buffers are
// contiguous; addresses of 16 bytes and widths that fill such vectors are fastest. What is not named as read may hold
// NaN.
#include <cstdint>

#include "kernels/element.h"

namespace mhar::kernels {

struct NormSizes {
  int64_t rows, width;  ///< P >= 0, D >= 1
  Element type;         ///< of values and weights: f32 or bf16
  double eps;
};

/// y = weight * x / rms(x), where x / rms(x) is rounded to the storage type before it meets the weight, as rms_norm of
/// the composed form and Hugging Face do.
struct NormForward {
  const void* x;                 ///< [P, D]: the row itself, or the stream
  const void* output = nullptr;  ///< [P, D]: a sublayer's output to add to the stream; null: nothing is added
  const void* weight;            ///< [D]
  void* sum = nullptr;  ///< [P, D], with `output`: x + output rounded once, written; may be the memory of either
  void* normed;         ///< y [P, D], written
  float* rho;           ///< [P]: 1 / rms, written
};

struct NormBackward {
  const void* normed_gradient;         ///< dy [P, D]
  const void* sum_gradient = nullptr;  ///< [P, D]: what reaches the normed row on other ways, or null
  const void* x;                       ///< [P, D]: the normed row, the sum where there was one
  const void* weight;                  ///< [D]
  const float* rho;                    ///< [P]
  void* x_gradient;       ///< [P, D]: both ways together, rounded once; may be the memory of either gradient
  void* weight_gradient;  ///< [D]: summed over the rows in an order fixed by sizes and device, rounded once
  void* scratch;          ///< NormKernels::scratch_bytes, 16-byte aligned
};

/// One implementation. Functions return 0, a cudaError_t of the launch, or not_built_with_cuda; they allocate nothing
/// and do not wait. `queue` is the cudaStream_t, or for the CPU a ParallelFor or null.
struct NormKernels {
  /// Null if it takes this shape, otherwise why not, as the end of "... takes no ".
  const char* (*refuses)(const NormSizes&);
  int64_t (*scratch_bytes)(const NormSizes&);
  int (*forward)(const NormSizes&, const NormForward&, void* queue);
  int (*backward)(const NormSizes&, const NormBackward&, void* queue);
};

const NormKernels& norm_kernels_cpu();
/// Compute capability 8.0 and later.
const NormKernels& norm_kernels_cuda();

}  // namespace mhar::kernels
