#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace mhar::data {

/// A fixed order over windows: every epoch a seeded permutation of all of them, cut into batches, the last partial
/// batch dropped. Its whole state is the number of the next batch, so a resumed run goes on exactly where it was.
class Sampler {
 public:
  /// Throws InputError when not one batch fits (naming the option to change).
  Sampler(int64_t windows, int64_t batch, uint64_t seed);

  /// The window numbers of batch `index` (0, 1, ...), `batch` of them. Valid until the next call.
  std::span<const int64_t> batch(int64_t index);
  int64_t batches_per_epoch() const { return windows_ / batch_; }

 private:
  int64_t windows_, batch_;
  uint64_t seed_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;
};

}  // namespace mhar::data
