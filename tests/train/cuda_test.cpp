#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cmath>

#include "base/temporary_folder.h"
#include "ops/device.h"
#include "train/device.h"
#include "train/small_run.h"

namespace mhar {
namespace {

// The laws of trainer_test.cpp on a GPU, with the settings that `mhar train` makes.
class TrainerCuda : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!ops::built_with_cuda() || !torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device here";
    make_deterministic(0);
  }

  RunConfig config() const {
    RunConfig config = test::small_config(GetParam(), 20);
    config.precision = "bf16";
    config.global_batch = 8;
    return config;
  }

  static BatchSource source(const RunConfig& config) {
    return [inner = test::letter_source(config)](int64_t index) {
      auto batches = inner(index);
      for (auto& batch : batches) {
        batch.ids = batch.ids.cuda();
        batch.targets = batch.targets.cuda();
      }
      return batches;
    };
  }
};
INSTANTIATE_TEST_SUITE_P(Designs, TrainerCuda, testing::ValuesIn(test::design_names()),
                         [](const auto& i) { return i.param; });

TEST_P(TrainerCuda, GivesTheSameBitsTwice) {
  const TemporaryFolder folder;
  std::string hashes[2];
  for (auto& hash : hashes) {
    Trainer trainer(config(), at::Device(at::kCUDA, 0), source(config()));
    const double first = trainer.step().loss;
    double last = first;
    while (trainer.state().step < 20) last = trainer.step().loss;
    EXPECT_LT(last, first);
    hash = test::state_hash(trainer, folder.path() / "state");
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_P(TrainerCuda, SaveRestoreContinueEqualsNotStopping) {
  const TemporaryFolder folder;
  const at::Device device(at::kCUDA, 0);
  Trainer whole(config(), device, source(config())), half(config(), device, source(config()));
  for (int i = 0; i < 8; ++i) whole.step();
  for (int i = 0; i < 3; ++i) half.step();
  half.save(folder.path());
  Trainer resumed(config(), device, source(config()));
  resumed.restore(folder.path(), read_state(folder.path()));
  for (int i = 0; i < 5; ++i) resumed.step();
  EXPECT_EQ(test::state_hash(whole, folder.path() / "a"), test::state_hash(resumed, folder.path() / "b"));
}

TEST_P(TrainerCuda, FollowsTheCpu) {
  RunConfig wide = config();
  wide.precision = "fp32";
  Trainer gpu(wide, at::Device(at::kCUDA, 0), source(wide)), cpu(wide, at::kCPU, test::letter_source(wide));
  for (int i = 0; i < 10; ++i) {
    const StepResult a = gpu.step(), b = cpu.step();
    EXPECT_NEAR(a.loss, b.loss, 1e-3 * b.loss) << "step " << i + 1;
    EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-2 * b.gradient_norm) << "step " << i + 1;
  }
}

}  // namespace
}  // namespace mhar
