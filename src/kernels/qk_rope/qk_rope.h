#pragma once
// Per-head RMSNorm of queries and keys and their rotary positions in one go: Eq. 9, 10 and 14 of docs/method.md. P rows
// (tokens), n query and G key/value heads of k channels.
//
// Backward needs what was normed. Reading it back from the result is not possible where a weight is 0, and loses bits
// where the type is narrow; so where there are norms, input and result are different memory and the caller keeps the
// input. That moves no more bytes than in place: every element is read once and written once. Without norms, and
// backward always, the result may be the memory of the input.
#include <cstdint>

#include "kernels/element.h"

namespace mhar::kernels {

struct QkRopeSizes {
  int64_t rows;                       ///< P >= 0
  int64_t heads, kv_heads, head_dim;  ///< n, G >= 1; k even, at most 256
  int64_t positions;                  ///< T: row p has position p modulo T, which is also its row of the tables
  Element type;                       ///< of values and weights: f32 or bf16
  double eps = 1e-6;
};

/// Where heads lie: those of row p side by side from queries + p * query_stride elements, and keys likewise.
struct QkHeads {
  void *queries, *keys;
  int64_t query_stride, key_stride;
};

/// Heads of a packed buffer [P, (n + 2G) k]: queries, keys, values.
inline QkHeads packed_heads(const QkRopeSizes& z, void* buffer) {
  const int64_t row = (z.heads + 2 * z.kv_heads) * z.head_dim;
  return {buffer, static_cast<char*>(buffer) + z.heads * z.head_dim * bytes_of(z.type), row, row};
}

/// x / rms(x) is rounded to the storage type, then its product with the weight, then the turned pair.
struct QkRopeForward {
  QkHeads input;                                   ///< read only
  QkHeads result;                                  ///< written
  const void* query_weight = nullptr;              ///< [k], or null: no norms, and then both are null
  const void* key_weight = nullptr;                ///< [k]
  const float *cosine = nullptr, *sine = nullptr;  ///< [T, k / 2]
  float* rho = nullptr;                            ///< [P, n + G]: 1 / rms of each head, written where there are norms
};

struct QkRopeBackward {
  QkHeads gradient;  ///< of the result, read only
  QkHeads input;     ///< of the forward pass, read only; not read without norms
  QkHeads result;    ///< gradient of the input, rounded once, written; may be the memory of `gradient`
  const void* query_weight = nullptr;
  const void* key_weight = nullptr;
  const float *cosine = nullptr, *sine = nullptr;
  const float* rho = nullptr;
  void* query_weight_gradient = nullptr;  ///< [k]: summed over rows and heads in an order fixed by sizes and device
  void* key_weight_gradient = nullptr;
  void* scratch = nullptr;  ///< QkRopeKernels::scratch_bytes, 16-byte aligned; not used without norms
};

/// One implementation; the conventions are those of NormKernels (kernels/norm/norm.h).
struct QkRopeKernels {
  const char* (*refuses)(const QkRopeSizes&);
  int64_t (*scratch_bytes)(const QkRopeSizes&);
  int (*forward)(const QkRopeSizes&, const QkRopeForward&, void* queue);
  int (*backward)(const QkRopeSizes&, const QkRopeBackward&, void* queue);
};

const QkRopeKernels& qk_rope_kernels_cpu();
/// Compute capability 8.0 and later.
const QkRopeKernels& qk_rope_kernels_cuda();

}  // namespace mhar::kernels
