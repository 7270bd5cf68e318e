#pragma once
// Causal attention over packed projections by cuDNN, docs/method.md Eq. 14. Letters: B windows of T tokens, query heads
// and kv_heads of head_dim channels. No LibTorch; the caller owns all memory.
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/element.h"

namespace mhar::kernels {

struct AttentionSizes {
  int64_t batch, tokens, heads, kv_heads, head_dim;
  Element type;  ///< bf16 or fp16
  /// Elements between tokens; heads of a token follow one another, windows follow one another.
  int64_t query_pitch, key_pitch, value_pitch, output_pitch, value_gradient_pitch;
  bool deterministic;  ///< the same bits on every run, for 1 to 3 % of a step's time

  bool operator==(const AttentionSizes&) const = default;
};

struct AttentionForward {
  const void *query, *key, *value;  ///< [B, T, heads or kv_heads, head_dim] at the pitches above
  void* output;                     ///< [B, T, heads, head_dim]: written
  float* statistics;                ///< [B, heads, T]: written; logarithms of the softmax's denominators
};

struct AttentionBackward {
  const void *query, *key, *value, *output, *output_gradient;  ///< the last has the output's pitch
  const float* statistics;
  void *query_gradient, *key_gradient;  ///< written, at the pitches of query and key
  void* value_gradient;                 ///< written, at its own
};

/// cuDNN's plans for one shape on the current device. Building them takes a second; running allocates nothing and does
/// not wait.
class CudnnAttention {
 public:
  /// Null with the reason in `refusal`, as the end of "cuDNN attention takes no ...", where cuDNN or this build does
  /// not have the shape.
  static std::unique_ptr<CudnnAttention> build(const AttentionSizes& sizes, std::string& refusal);

  virtual ~CudnnAttention() = default;
  virtual int64_t workspace_bytes() const = 0;  ///< of either direction; 256-byte aligned
  /// 0, or what went wrong in `fault`. `queue` is the cudaStream_t.
  virtual int forward(const AttentionForward& pass, void* workspace, void* queue, std::string& fault) const = 0;
  virtual int backward(const AttentionBackward& pass, void* workspace, void* queue, std::string& fault) const = 0;
};

}  // namespace mhar::kernels
