#pragma once
#include <ATen/ATen.h>

#include "ops/attention.h"

namespace mhar::ops {

/// How the rows of a packed projection [B T, (n + 2G) k] are to be read: queries, keys, values.
struct HeadLayout {
  int64_t batch, tokens;              ///< B, T
  int64_t heads, kv_heads, head_dim;  ///< n, G, k
};

/// Weights [k] of the per-head RMSNorms of queries and keys; both undefined where the model has none.
struct HeadNorms {
  at::Tensor query, key;
  double eps = 1e-6;
};

/// What attention takes: [B, T, n, k] and [B, T, G, k] twice. `value` is memory of the projection.
struct Heads {
  at::Tensor query, key, value;
};

/// Norms (Eq. 9) and turns (Eq. 14) the heads of a packed projection; their positions are first .. first + T - 1 of the
/// table. Rounded where rms_norm and rotate round, in one pass over the heads, and backward from the gradients of all
/// three to that of the projection. fp32 and bf16 run on the kernels, the rest is composed. Throws
/// std::invalid_argument for other shapes.
Heads qk_rope(const at::Tensor& projection, const HeadLayout& layout, const HeadNorms& norms, const RotaryTable& table,
              int64_t first);

}  // namespace mhar::ops
