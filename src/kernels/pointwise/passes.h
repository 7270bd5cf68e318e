#pragma once
// The CPU's side of the pointwise kernels (norm, qk_rope, swiglu): one table of passes per level of instructions.
#include "kernels/norm/norm.h"
#include "kernels/qk_rope/qk_rope.h"
#include "kernels/swiglu/swiglu.h"

namespace mhar::kernels {

struct PointwisePasses {
  void (*norm_forward)(const NormSizes&, const NormForward&, void* queue);
  void (*norm_backward)(const NormSizes&, const NormBackward&, void* queue);
  void (*qk_rope_forward)(const QkRopeSizes&, const QkRopeForward&, void* queue);
  void (*qk_rope_backward)(const QkRopeSizes&, const QkRopeBackward&, void* queue);
  void (*swiglu_forward)(const SwigluSizes&, const SwigluForward&, void* queue);
  void (*swiglu_backward)(const SwigluSizes&, const SwigluBackward&, void* queue);
};

// cmake/Kernels.cmake gives the first two their instruction sets where the processor is an x86-64.
extern const PointwisePasses pointwise_passes_avx512, pointwise_passes_avx2, pointwise_passes_any;

/// The passes for this processor.
const PointwisePasses& pointwise_passes();

/// Sums over rows are taken over this many ranges at most, fixed by the number of rows alone, and added in order: the
/// bits of the result do not depend on the threads.
inline constexpr int64_t kRowRanges = 64;

}  // namespace mhar::kernels
