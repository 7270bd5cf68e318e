#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "data/sampler.h"
#include "data/token_stream.h"

namespace mhar {

/// B windows of T tokens on the model's device. Targets below zero are not counted.
struct Batch {
  at::Tensor ids;       ///< [B, T] int64
  at::Tensor targets;   ///< [B T] int64
  int64_t counted = 0;  ///< targets that count
};

/// Windows `windows` of a stream as one batch (Eq. 34; neighbours share one token).
Batch read_windows(const data::TokenStream& stream, std::span<const int64_t> windows, int64_t sequence,
                   at::Device device);

/// Where the trainer gets the microbatches of an update from: number `index` in the fixed order.
using BatchSource = std::function<std::vector<Batch>(int64_t index)>;

/// The seeded order over a training stream, cut into microbatches. `stream` must outlive it.
BatchSource sampled_batches(const data::TokenStream& stream, data::Sampler sampler, int64_t sequence,
                            int64_t microbatch, at::Device device);

}  // namespace mhar
