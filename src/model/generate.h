#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "model/decoder.h"

namespace mhar {

struct SamplingOptions {
  int64_t tokens = 200;      ///< how many to sample
  double temperature = 1.0;  ///< 0: always the likeliest
  int64_t top_k = 0;         ///< sample among the k likeliest; 0: all
  uint64_t seed = 42;
  int64_t end_of_text = -1;  ///< -1: the model has none
  bool stop_at_end = false;  ///< stop at end-of-text; otherwise it is never sampled
  int64_t context = 0;       ///< positions seen at most; 0: the length the model was trained on
};

/// Samples tokens after a prompt of at least one token, handing each to `sink` as it comes. Keys and values are cached;
/// when the context is full, its later half is read again and sampling goes on from there. A prompt longer than the
/// context is cut to its end. Throws InputError for an empty prompt or ids outside the vocabulary.
std::vector<int64_t> generate(const Decoder& model, std::vector<int64_t> prompt, const SamplingOptions& options,
                              const std::function<void(int64_t token)>& sink = {});

}  // namespace mhar
