#pragma once
#include <ATen/ATen.h>

#include <string>

namespace mhar::ops {

/// Causal grouped attention by cuDNN (kernels/attention/attention.h): q [B, T, n, d], k and v [B, T, g, d], heads of a
/// token next to one another; gives [B, T, n, d], or an undefined tensor where cuDNN does not take these. With the same
/// bits on every run while LibTorch's deterministic algorithms are on. Throws std::runtime_error when a launch fails.
at::Tensor cudnn_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

/// Empty if cuDNN takes such tensors, otherwise why not, as the end of "cuDNN attention takes no ...".
std::string cudnn_attention_refuses(at::Device device, at::ScalarType storage, int64_t heads, int64_t kv_heads,
                                    int64_t head_dim, int64_t tokens);

}  // namespace mhar::ops
