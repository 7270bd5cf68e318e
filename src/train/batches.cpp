#include "train/batches.h"

#include <algorithm>
#include <memory>

namespace mhar {

Batch read_windows(const data::TokenStream& stream, std::span<const int64_t> windows, int64_t sequence,
                   at::Device device) {
  const int64_t rows = static_cast<int64_t>(windows.size());
  // Out of pinned memory, which the device fetches while the host goes on.
  const auto options = at::TensorOptions(at::kLong).pinned_memory(device.is_cuda());
  const auto tokens_from = [&](int64_t first) {
    const at::Tensor tokens = at::empty({rows, sequence}, options);
    auto* out = tokens.data_ptr<int64_t>();
    for (int64_t row = 0; row < rows; ++row) {
      stream.copy(windows[row] * sequence + first, {out + row * sequence, static_cast<size_t>(sequence)});
    }
    return tokens.to(device, /*non_blocking=*/true);
  };
  Batch batch;
  batch.ids = tokens_from(0);
  batch.targets = tokens_from(1).view({-1});
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
