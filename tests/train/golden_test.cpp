#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "train/small_run.h"

// Twenty losses of every design in fp32 on the CPU. A refactor reproduces them; a change of numerics rewrites them with
//   build/test_train --gtest_also_run_disabled_tests --gtest_filter='*WriteGolden*'
// and says why. Bit-equal on one machine with one thread count; 1e-5 relative elsewhere.

namespace mhar {
namespace {

constexpr int kSteps = 20;

fs::path golden_file(const std::string& design) { return fs::path(MHAR_TESTS_DIR) / "golden" / (design + ".txt"); }

std::vector<double> losses(const std::string& design) {
  RunConfig config = test::small_config(design, kSteps);
  config.global_batch = 8;
  Trainer trainer(config, at::kCPU, test::letter_source(config));
  std::vector<double> result;
  for (int i = 0; i < kSteps; ++i) result.push_back(trainer.step().loss);
  return result;
}

class Golden : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Designs, Golden, testing::ValuesIn(test::design_names()),
                         [](const auto& i) { return i.param; });

TEST_P(Golden, TwentyLosses) {
  std::ifstream file(golden_file(GetParam()));
  std::vector<double> stored;
  for (double value = 0; file >> value;) stored.push_back(value);
  ASSERT_EQ(stored.size(), size_t{kSteps}) << golden_file(GetParam());
  const auto now = losses(GetParam());
  for (int i = 0; i < kSteps; ++i) EXPECT_NEAR(now[i], stored[i], 1e-5 * stored[i]) << "step " << i + 1;
}

TEST_P(Golden, DISABLED_WriteGolden) {
  std::ofstream file(golden_file(GetParam()));
  for (const double loss : losses(GetParam())) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g\n", loss);
    file << text;
  }
}

}  // namespace
}  // namespace mhar
