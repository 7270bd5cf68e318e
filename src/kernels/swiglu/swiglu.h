#pragma once
// The gate of the MLP, Eq. 19 and 20 of docs/method.md: u = silu(a) * b over rows that hold the gate a and then the
// other half b, as one projection of both leaves them. P rows (tokens), F inner width.
#include <cstdint>

#include "kernels/element.h"

namespace mhar::kernels {

struct SwigluSizes {
  int64_t rows, inner;  ///< P >= 0, F >= 1
  Element type;         ///< f32 or bf16
};

/// silu(a) is rounded to the storage type before it meets b: that is what the composed form and Hugging Face's models
/// compute, so a checkpoint of theirs gives the same numbers here.
struct SwigluForward {
  const void* gate_up;  ///< [P, 2F]: a, b
  void* inner;          ///< u [P, F], written
};

/// Eq. 20 in fp32, each gradient rounded once; only silu(a) in db is the rounded one, since that is what b met.
struct SwigluBackward {
  const void* gate_up;         ///< [P, 2F]
  const void* inner_gradient;  ///< du [P, F]
  void* gate_up_gradient;      ///< [P, 2F]: da, db, written; may be the memory of gate_up
  void* inner = nullptr;       ///< u [P, F] once more, written where not null: then nobody has to keep it
};

/// One implementation; the conventions are those of NormKernels (kernels/norm/norm.h).
struct SwigluKernels {
  const char* (*refuses)(const SwigluSizes&);
  int (*forward)(const SwigluSizes&, const SwigluForward&, void* queue);
  int (*backward)(const SwigluSizes&, const SwigluBackward&, void* queue);
};

const SwigluKernels& swiglu_kernels_cpu();
/// Compute capability 8.0 and later.
const SwigluKernels& swiglu_kernels_cuda();

}  // namespace mhar::kernels
