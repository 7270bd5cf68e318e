// Chunked reads in training: they differ from composed ones as two orders of summation differ, and no more.
#include <gtest/gtest.h>

#include <cmath>

#include "train/device.h"
#include "train/small_run.h"

namespace mhar {
namespace {

constexpr int64_t kSteps = 50;

std::vector<double> losses(RunConfig config, at::Device device) {
  Trainer trainer(config, device, [config, device](int64_t index) {
    auto batches = test::letter_source(config)(index);
    for (Batch& batch : batches) batch.ids = batch.ids.to(device), batch.targets = batch.targets.to(device);
    return batches;
  });
  std::vector<double> result;
  for (int64_t i = 0; i < kSteps; ++i) result.push_back(trainer.step().loss);
  return result;
}

double mean_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += std::abs(a[i] - b[i]);
  return total / static_cast<double>(a.size());
}

// The same 50 batches of 8 windows in bf16. Two composed runs that cut them into microbatches differently sum
// gradients in another order; the chunked run may be at most twice as far from a composed one. Three seeds: the
// differences are noise that grows over the steps, and one seed would compare luck.
void compare(at::Device device) {
  double order = 0, reads = 0;
  for (int64_t seed = 1; seed <= 3; ++seed) {
    RunConfig config = test::small_config("mhar", kSteps);
    config.precision = "bf16";
    config.layers = 4;
    config.seed = seed;
    config.global_batch = 8;
    config.read = "composed";
    const auto composed = losses(config, device);
    RunConfig chunked = config;
    chunked.read = "chunked";
    reads += mean_difference(losses(chunked, device), composed);
    RunConfig split = config;
    split.microbatch = 2;
    order += mean_difference(losses(split, device), composed);
  }
  EXPECT_GT(order, 0);
  EXPECT_LE(reads, 2 * order) << "mean differences " << reads / 3 << " and " << order / 3;
}

TEST(ChunkedReads, TrainLikeComposedOnes) { compare(at::kCPU); }

TEST(ChunkedReadsCuda, TrainLikeComposedOnes) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  compare({at::kCUDA, 0});
}

}  // namespace
}  // namespace mhar
