// Updates replayed as one CUDA graph: the same bits as updates queued operation by operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "train/small_run.h"

namespace mhar {
namespace {

using test::letter_source;
using test::small_config;
using testing::HasSubstr;

std::vector<Batch> on_gpu(std::vector<Batch> batches) {
  for (Batch& batch : batches) batch.ids = batch.ids.to(at::kCUDA), batch.targets = batch.targets.to(at::kCUDA);
  return batches;
}

BatchSource gpu_source(const RunConfig& config) {
  return [source = letter_source(config)](int64_t index) { return on_gpu(source(index)); };
}

// What training leaves behind after `steps` updates: losses and the hash of every tensor.
struct Outcome {
  std::vector<double> losses;
  std::string hash;
  bool replayed = false;

  Outcome(const RunConfig& config, const BatchSource& source, int64_t steps) {
    const TemporaryFolder folder;
    Trainer trainer(config, at::Device(at::kCUDA, 0), source);
    for (int64_t i = 0; i < steps; ++i) losses.push_back(trainer.step().loss);
    hash = test::state_hash(trainer, folder.path() / "state");
    replayed = trainer.replays();
  }
};

class RecordedUpdateCuda : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device on this machine";
  }

  static RunConfig config(const std::string& precision, int64_t accumulate) {
    RunConfig config = small_config(GetParam());
    config.precision = precision;
    config.global_batch = accumulate * config.microbatch;
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(Designs, RecordedUpdateCuda, testing::ValuesIn(test::design_names()),
                         [](const auto& i) { return i.param; });

TEST_P(RecordedUpdateCuda, ReplaysGiveTheBitsOfEagerUpdates) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const int64_t accumulate : {1, 3}) {
      RunConfig graph = config(precision, accumulate), eager = graph;
      eager.cuda_graph = false;
      const Outcome a(graph, gpu_source(graph), 12), b(eager, gpu_source(eager), 12);
      EXPECT_TRUE(a.replayed);
      EXPECT_FALSE(b.replayed);
      EXPECT_EQ(a.losses, b.losses) << precision << " " << accumulate;
      EXPECT_EQ(a.hash, b.hash) << precision << " " << accumulate;
      EXPECT_LT(a.losses.back(), a.losses.front());
    }
  }
}

TEST_P(RecordedUpdateCuda, ABatchOfAnotherShapeRunsWithoutTheGraph) {
  RunConfig graph = config("bf16", 1), eager = graph;
  eager.cuda_graph = false;
  const BatchSource source = [](int64_t index) {
    return on_gpu({test::letters(index, index == 6 ? 3 : 4, index == 8 ? 9 : 16)});
  };
  const Outcome a(graph, source, 12), b(eager, source, 12);
  EXPECT_TRUE(a.replayed);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.hash, b.hash);
}

// Field case 48 with a replayed update: the device skips it and what follows, and the step is named.
TEST_P(RecordedUpdateCuda, ALossThatIsNotFiniteStopsAReplay) {
  const TemporaryFolder folder;
  RunConfig run = config("bf16", 2);
  run.tied = false;
  Trainer trainer(run, at::Device(at::kCUDA, 0), [&run](int64_t index) {
    auto batches = letter_source(run)(index);
    if (index == 8) batches[1].ids[2][3] = 200;
    return on_gpu(std::move(batches));
  });
  trainer.model()
      .parameters()
      .get("model.embed_tokens.weight")
      .detach()[200]
      .fill_(std::numeric_limits<float>::quiet_NaN());
  for (int i = 0; i < 8; ++i) trainer.step();
  EXPECT_TRUE(trainer.replays());
  const std::string before = test::state_hash(trainer, folder.path() / "before");
  trainer.launch();
  trainer.launch();  // an update ahead of what the host knows
  try {
    trainer.result(/*wait=*/true);
    FAIL() << "wanted a RunError";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 9, microbatch 2 of 2: wanted a finite loss"));
  }
  EXPECT_EQ(before, test::state_hash(trainer, folder.path() / "after"));
}

}  // namespace
}  // namespace mhar
