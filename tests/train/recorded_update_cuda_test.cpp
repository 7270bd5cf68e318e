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

// Blocks of a size that has a piece of its own, without padding: memory of gradients comes and goes, and their GEMMs
// take long enough to be overtaken by what does not wait for them.
RunConfig in_pieces(const std::string& design, const std::string& precision, int64_t accumulate, bool tied) {
  RunConfig config = small_config(design);
  config.precision = precision;
  config.width = 512, config.heads = 8, config.kv_heads = 4, config.head_dim = 64, config.ffn = 1536, config.layers = 3;
  config.sequence = 64;
  config.rate = 1e-3;
  config.tied = tied;
  config.global_batch = accumulate * config.microbatch;
  return config;
}

TEST_P(RecordedUpdateCuda, GradientsInPiecesGiveTheBitsOfEagerUpdates) {
  for (const bool tied : {true, false}) {
    for (const int64_t accumulate : {1, 2}) {
      RunConfig graph = in_pieces(GetParam(), "bf16", accumulate, tied), eager = graph;
      eager.cuda_graph = false;
      const Outcome a(graph, gpu_source(graph), 10), b(eager, gpu_source(eager), 10),
          again(graph, gpu_source(graph), 10);
      EXPECT_TRUE(a.replayed);
      EXPECT_EQ(a.losses, b.losses) << tied << " " << accumulate;
      EXPECT_EQ(a.hash, b.hash) << tied << " " << accumulate;
      EXPECT_EQ(a.hash, again.hash) << tied << " " << accumulate;
    }
  }
}

TEST_P(RecordedUpdateCuda, GradientsInPiecesFollowTheCpu) {
  for (const bool tied : {true, false}) {
    const RunConfig config = in_pieces(GetParam(), "fp32", 1, tied);
    Trainer gpu(config, at::Device(at::kCUDA, 0), gpu_source(config)), cpu(config, at::kCPU, letter_source(config));
    EXPECT_GE(gpu.model().parameters().gradient().size(), 3u);
    for (int i = 0; i < 6; ++i) {
      const StepResult a = gpu.step(), b = cpu.step();
      EXPECT_NEAR(a.loss, b.loss, 1e-4 * b.loss) << "step " << i + 1;
      EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-3 * b.gradient_norm) << "step " << i + 1;
    }
  }
}

// What a run does between updates leaves the recording as it is.
TEST_P(RecordedUpdateCuda, EvaluatingAndGoingBackBetweenReplays) {
  const TemporaryFolder folder;
  const at::Device device(at::kCUDA, 0);
  const RunConfig config = in_pieces(GetParam(), "bf16", 1, true);
  Trainer whole(config, device, gpu_source(config)), other(config, device, gpu_source(config));
  for (int i = 0; i < 12; ++i) whole.step();
  for (int i = 0; i < 7; ++i) other.step();
  fs::create_directories(folder.path() / "saved");
  other.save(folder.path() / "saved");
  const auto evaluate = [&](int64_t tokens) {
    const at::NoGradGuard no_gradient;
    other.model().hidden(on_gpu({test::letters(99, 2, tokens)})[0].ids);
  };
  evaluate(64);
  evaluate(200);  // longer than the model was made for: its rotary table grows
  for (int i = 0; i < 3; ++i) other.step();
  EXPECT_TRUE(other.replays());
  other.restore(folder.path() / "saved", read_state(folder.path() / "saved"));
  for (int i = 0; i < 5; ++i) other.step();
  EXPECT_TRUE(other.replays());
  EXPECT_EQ(test::state_hash(whole, folder.path() / "a"), test::state_hash(other, folder.path() / "b"));
}

TEST_P(RecordedUpdateCuda, ABatchOfAnotherShapeRunsWithoutTheGraph) {
  RunConfig graph = config("bf16", 1), eager = graph;
  eager.cuda_graph = false;
  const BatchSource source = [](int64_t index) {
    return on_gpu({test::letters(index, index == 6 ? 3 : 4, index == 8 ? 9 : index == 9 ? 40 : 16)});
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
