#include "train/batches.h"

#include <algorithm>
#include <memory>

namespace mhar {

Batch read_windows(const data::TokenStream& stream, std::span<const int64_t> windows, int64_t sequence,
                   at::Device device) {
  const int64_t rows = static_cast<int64_t>(windows.size()), span = sequence + 1;
  const at::Tensor tokens = at::empty({rows, span}, at::kLong);
  auto* out = tokens.data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    stream.copy(windows[row] * sequence, {out + row * span, static_cast<size_t>(span)});
  }
  Batch batch;
  batch.ids = tokens.slice(1, 0, sequence).contiguous().to(device);
  batch.targets = tokens.slice(1, 1).reshape({-1}).to(device);
  batch.counted = rows * sequence;
  return batch;
}

BatchSource sampled_batches(const data::TokenStream& stream, data::Sampler sampler, int64_t sequence,
                            int64_t microbatch, at::Device device) {
  // Shared, since a std::function must be copyable and the permutation of an epoch can be large.
  auto order = std::make_shared<data::Sampler>(std::move(sampler));
  return [&stream, order, sequence, microbatch, device](int64_t index) {
    const auto windows = order->batch(index);
    std::vector<Batch> batches;
    for (size_t begin = 0; begin < windows.size(); begin += microbatch) {
      const auto part = windows.subspan(begin, std::min<size_t>(microbatch, windows.size() - begin));
      batches.push_back(read_windows(stream, part, sequence, device));
    }
    return batches;
  };
}

}  // namespace mhar
