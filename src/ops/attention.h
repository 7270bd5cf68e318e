#pragma once
#include <ATen/ATen.h>

#include <string>

namespace mhar::ops {

/// Cosines and sines of the rotary angles, each [T, d / 2] in fp32 (fp64 for fp64 models), one row a position.
struct RotaryTable {
  at::Tensor cosine, sine;
};

/// The table of positions 0 .. length - 1 for inverse frequencies [d / 2] (double, CPU).
RotaryTable rotary_table(const at::Tensor& inverse_frequencies, int64_t length, at::ScalarType storage,
                         at::Device device);

/// Rotates the halves of each head (Hugging Face's layout) by its position: x [B, T, n, d], positions
/// first .. first + T - 1. Arithmetic in the compute type, rounded once.
at::Tensor rotate(const at::Tensor& x, const RotaryTable& table, int64_t first);

/// Grouped-query attention with scale 1 / sqrt(d): q [B, T, n, d], k and v [B, S, g, d], g dividing n; returns
/// [B, T, n d]. Causal when T > 1, where S must equal T; with T = 1 the query sees all S keys.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

/// Name of the kernel that attention() will run for such a query, for the log: cuDNN called directly ("cudnn", with
/// "deterministic"), or ATen's flash, efficient, cudnn or math.
std::string attention_kernel(at::Device device, at::ScalarType storage, int64_t heads, int64_t kv_heads,
                             int64_t head_dim, int64_t sequence);

}  // namespace mhar::ops
