#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/temporary_folder.h"
#include "ops/token_loss.h"
#include "train/small_run.h"

namespace mhar {
namespace {

using test::letter_source;
using test::small_config;
using testing::HasSubstr;

class EveryDesign : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Designs, EveryDesign, testing::ValuesIn(test::design_names()),
                         [](const auto& i) { return i.param; });

TEST_P(EveryDesign, LearnsAndGivesTheSameBitsTwice) {
  const TemporaryFolder folder;
  const RunConfig config = small_config(GetParam(), 60);
  std::string hashes[2];
  for (auto& hash : hashes) {
    Trainer trainer(config, at::kCPU, letter_source(config));
    const double first = trainer.step().loss;
    double last = first;
    while (trainer.state().step < config.steps) last = trainer.step().loss;
    EXPECT_LT(last, 0.6 * first);
    hash = test::state_hash(trainer, folder.path() / "state");
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

struct Setting {
  const char *precision, *rounding, *moments;
};

TEST_P(EveryDesign, SaveRestoreContinueEqualsNotStopping) {
  for (const Setting s : {Setting{"fp32", "stochastic", "parameters"}, Setting{"bf16", "stochastic", "parameters"},
                          Setting{"bf16", "nearest", "fp32"}, Setting{"bf16", "master", "parameters"}}) {
    const TemporaryFolder folder;
    RunConfig config = small_config(GetParam(), 8);
    config.precision = s.precision;
    config.rounding = s.rounding;
    config.moments = s.moments;
    Trainer whole(config, at::kCPU, letter_source(config));
    for (int i = 0; i < 8; ++i) whole.step();
    auto half = std::make_unique<Trainer>(config, at::kCPU, letter_source(config));
    for (int i = 0; i < 3; ++i) half->step();
    fs::create_directories(folder.path() / "half");
    half->save(folder.path() / "half");
    half.reset();
    Trainer resumed(config, at::kCPU, letter_source(config));
    resumed.restore(folder.path() / "half", read_state(folder.path() / "half"));
    EXPECT_EQ(resumed.state().step, 3);
    for (int i = 0; i < 5; ++i) resumed.step();
    EXPECT_EQ(test::state_hash(whole, folder.path() / "a"), test::state_hash(resumed, folder.path() / "b"))
        << s.precision << " " << s.rounding << " " << s.moments;
  }
}

// Field case 25: what cannot move is known, everything else moves.
TEST_P(EveryDesign, OnlyTheFirstQueryStaysAtItsStart) {
  const RunConfig config = small_config(GetParam(), 100);
  Trainer trainer(config, at::kCPU, letter_source(config));
  for (int i = 0; i < 100; ++i) trainer.step();
  std::vector<std::string> fixed;
  for (const auto& spec : trainer.model().parameters().specs()) {
    if (!spec.can_move) fixed.push_back(spec.name);
  }
  EXPECT_EQ(trainer.unmoved(), fixed);
  EXPECT_LE(fixed.size(), 1u);
}

TEST(Trainer, NearestRoundingOfBf16LeavesGainsWhereTheyAre) {
  RunConfig config = small_config("standard", 100);
  config.precision = "bf16";
  config.rounding = "nearest";
  config.rate = 1e-3;
  Trainer trainer(config, at::kCPU, letter_source(config));
  for (int i = 0; i < 100; ++i) trainer.step();
  EXPECT_THAT(trainer.unmoved(), testing::Contains("model.layers.0.input_layernorm.weight"));
}

// Field case 52: the loss of a step is a mean over tokens, not over microbatches.
TEST(Trainer, MicrobatchesAreWeightedByTheirCountedTokens) {
  const RunConfig config = small_config("mhar");
  Batch a = test::letters(1, 1, 4), b = test::letters(2, 1, 4);
  a.targets.slice(0, 1).fill_(-1);
  a.counted = 1;
  b.targets.slice(0, 3).fill_(-1);
  b.counted = 3;
  Trainer trainer(config, at::kCPU, [&](int64_t) { return std::vector<Batch>{a, b}; });
  const auto sum = [&](const Batch& batch) {
    const auto& model = trainer.model();
    return ops::token_loss(model.hidden(batch.ids), model.head().value, batch.targets, {.differentiable = false})
        .sum.item<double>();
  };
  const double expected = (sum(a) + sum(b)) / 4;
  EXPECT_GT(std::abs(expected - (sum(a) + sum(b) / 3) / 2), 1e-4);  // the mean of means is another number here
  EXPECT_NEAR(trainer.step().loss, expected, 1e-6);
}

TEST(Trainer, AccumulatingFourTimesTwoEqualsOnceEight) {
  RunConfig parts = small_config("mhar"), whole = parts;
  parts.microbatch = 2;
  parts.global_batch = whole.microbatch = whole.global_batch = 8;
  const Batch eight = test::letters(5, 8, 16);
  const auto cut = [&](int64_t rows) {
    return [&eight, rows](int64_t) {
      std::vector<Batch> batches;
      for (int64_t row = 0; row < 8; row += rows) {
        batches.push_back(
            {eight.ids.slice(0, row, row + rows), eight.targets.slice(0, row * 16, (row + rows) * 16), rows * 16});
      }
      return batches;
    };
  };
  Trainer a(parts, at::kCPU, cut(2)), b(whole, at::kCPU, cut(8));
  for (int step = 0; step < 3; ++step) {
    const StepResult x = a.step(), y = b.step();
    EXPECT_NEAR(x.loss, y.loss, 1e-6 * y.loss * (step + 1));
    EXPECT_NEAR(x.gradient_norm, y.gradient_norm, 1e-6 * y.gradient_norm * (step == 0 ? 1 : 100));
  }
}

// Field case 51: nothing to count, nothing done.
TEST(Trainer, ABatchWithoutCountedTokensIsNoStep) {
  const TemporaryFolder folder;
  const RunConfig config = small_config("mhar");
  Batch empty = test::letters(1, 4, 16);
  empty.targets.fill_(-1);
  empty.counted = 0;
  Trainer trainer(config, at::kCPU,
                  [&](int64_t index) { return std::vector<Batch>{index == 1 ? empty : test::letters(index, 4, 16)}; });
  trainer.step();
  const std::string before = test::state_hash(trainer, folder.path() / "a");
  const StepResult result = trainer.step();
  EXPECT_EQ(result.counted, 0);
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(trainer.state().step, 1);
  EXPECT_EQ(before, test::state_hash(trainer, folder.path() / "b"));
  EXPECT_EQ(trainer.step().step, 2);
}

// Runs to the step before a fault, then expects the message and that nothing changed.
void expect_stop(Trainer& trainer, int64_t good_steps, const std::string& message) {
  const TemporaryFolder folder;
  for (int64_t i = 0; i < good_steps; ++i) trainer.step();
  const std::string before = test::state_hash(trainer, folder.path() / "a");
  try {
    trainer.step();
    FAIL() << "wanted a RunError";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
  EXPECT_EQ(trainer.state().step, good_steps);
  EXPECT_EQ(before, test::state_hash(trainer, folder.path() / "b"));
}

// Field case 48: a byte that only the second microbatch of step 7 holds has a NaN embedding.
TEST(Trainer, StopsBeforeTheUpdateOfANonFiniteLoss) {
  RunConfig config = small_config("mhar");
  config.tied = false;
  config.global_batch = 16;
  Trainer trainer(config, at::kCPU, [](int64_t index) {
    std::vector<Batch> batches;
    for (int64_t part = 0; part < 4; ++part) batches.push_back(test::letters(index * 4 + part, 4, 16));
    if (index == 6) batches[1].ids[2][3] = 200;
    return batches;
  });
  trainer.model()
      .parameters()
      .get("model.embed_tokens.weight")
      .detach()[200]
      .fill_(std::numeric_limits<float>::quiet_NaN());
  expect_stop(trainer, 6, "step 7, microbatch 2 of 4: wanted a finite loss");
}

// A finite loss whose gradient is not: the last norm's gain is tiny and the head huge, so its gradient overflows.
TEST(Trainer, StopsBeforeTheUpdateOfANonFiniteGradient) {
  RunConfig config = small_config("standard");
  config.tied = false;
  config.global_batch = 8;
  Trainer trainer(config, at::kCPU, letter_source(config));
  trainer.model().parameters().get("model.norm.weight").detach().fill_(1e-22);
  trainer.model().parameters().get("lm_head.weight").detach().mul_(1e24);
  expect_stop(trainer, 0, "step 1, microbatch 1 of 2: wanted a finite gradient");
}

TEST(Trainer, GlobalNormIsTakenInFp32) {
  EXPECT_NEAR(global_norm({at::full({100}, 3.0f)}), 30.0, 1e-5);
  EXPECT_NEAR(global_norm({at::full({100}, 3.0f), at::full({50000}, 0.1f), at::full({4}, 5.0f)}), 10 * std::sqrt(15.0),
              1e-4);
  // A sum of squares in bf16 would stop growing at 256.
  EXPECT_NEAR(global_norm({at::ones({1 << 20}, at::kBFloat16)}), 1024.0, 1e-3);
}

}  // namespace
}  // namespace mhar
