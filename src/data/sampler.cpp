#include "data/sampler.h"

#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "data/random.h"

namespace mhar::data {

Sampler::Sampler(int64_t windows, int64_t batch, uint64_t seed) : windows_(windows), batch_(batch), seed_(seed) {
  if (batch < 1) {
    throw InputError(Fault{"option --global-batch", "", "at least 1 sequence", std::to_string(batch), "raise it"});
  }
  if (windows < batch) {
    throw InputError(Fault{"sample windows", "training split",
                           "text for one batch of " + std::to_string(batch) + " windows",
                           windows == 0 ? "less than one window" : std::to_string(windows) + " windows",
                           windows == 0 ? "prepare more text or lower --sequence"
                                        : "prepare more text or lower --global-batch or --sequence"});
  }
  order_.resize(static_cast<size_t>(windows));
}

std::span<const int64_t> Sampler::batch(int64_t index) {
  if (index < 0) throw std::out_of_range("Sampler::batch: negative index");
  const int64_t epoch = index / batches_per_epoch();
  if (epoch != epoch_) {
    std::iota(order_.begin(), order_.end(), int64_t{0});
    Random random(seed_, static_cast<uint64_t>(epoch));
    for (size_t last = order_.size(); last > 1; --last) std::swap(order_[last - 1], order_[random.below(last)]);
    epoch_ = epoch;
  }
  const int64_t first = index % batches_per_epoch() * batch_;
  return std::span(order_).subspan(static_cast<size_t>(first), static_cast<size_t>(batch_));
}

}  // namespace mhar::data
