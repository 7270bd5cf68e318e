#pragma once
// The gradient of an embedding: dE[t] += sum of dx over the tokens whose id is t. P tokens, D width.
#include <cstdint>

#include "kernels/element.h"

namespace mhar::kernels {

struct EmbeddingSizes {
  int64_t tokens, width;  ///< P >= 0, D >= 1
  Element type;           ///< of gradient and table: f32 or bf16
};

struct EmbeddingBackward {
  const int32_t* ids;    ///< [P] ascending
  const int64_t* order;  ///< [P]: the row of `gradient` each of them has, equal ids in ascending order
  const void* gradient;  ///< dx [P, D]
  void* table_gradient;  ///< dE [V, D], added to; rows that no id names are not touched
  void* scratch;         ///< scratch_bytes, on 16 bytes
};

/// One implementation. Sums are fp32, in a fixed order and rounded once, so every run gives the same bits. The
/// conventions are those of NormKernels (kernels/norm/norm.h).
struct EmbeddingKernels {
  const char* (*refuses)(const EmbeddingSizes&);
  int64_t (*scratch_bytes)(const EmbeddingSizes&);
  int (*backward)(const EmbeddingSizes&, const EmbeddingBackward&, void* queue);
};

/// Compute capability 8.0 and later.
const EmbeddingKernels& embedding_kernels_cuda();

}  // namespace mhar::kernels
