#include "reference/adamw.h"

#include "reference/check.h"
#include "reference/metrics.h"

namespace mhar::reference {
namespace {

/// `count` updates of one number with a fixed gradient.
double after(int64_t count, AdamwSettings settings, double parameter, double gradient) {
  std::vector<double> p{parameter}, g{gradient}, m{0.0}, v{0.0};
  for (settings.update = 1; settings.update <= count; ++settings.update) adamw<double>(settings, p, g, m, v);
  return p[0];
}

TEST(Adamw, ConstantGradientMovesByTheRate) {
  const AdamwSettings settings{.rate = 4e-4, .decay = 0.0};
  EXPECT_NEAR(after(1, settings, 0.0, -3.0), 4e-4, 1e-10);
  EXPECT_NEAR(after(50, settings, 0.0, -3.0), 0.02, 1e-9);
}

TEST(Adamw, DecayIsDecoupled) {
  const AdamwSettings settings{.rate = 1e-3, .decay = 0.1};
  EXPECT_NEAR(after(1000, settings, 1.0, 0.0), 0.9048, 5e-5);
  EXPECT_NEAR(after(1, settings, 2.0, 5.0), 2.0 * (1 - 1e-4) - 1e-3, 1e-10);  // the step does not see the decay
}

TEST(Adamw, SecondUpdateByHand) {
  // Gradients 1 then -2 with b1 = 0.5, b2 = 0.75: m = 0.5, -0.75; v = 0.25, 1.1875; corrections 0.75 and 0.4375.
  AdamwSettings settings{.rate = 0.1, .beta1 = 0.5, .beta2 = 0.75, .eps = 0.0, .decay = 0.0};
  std::vector<double> p{1.0}, m{0.0}, v{0.0};
  settings.update = 1;
  adamw<double>(settings, p, std::vector<double>{1.0}, m, v);
  EXPECT_NEAR(p[0], 0.9, 1e-15);
  settings.update = 2, settings.gradient_scale = 0.5;
  adamw<double>(settings, p, std::vector<double>{-4.0}, m, v);
  EXPECT_NEAR(m[0], -0.75, 1e-15);
  EXPECT_NEAR(v[0], 1.1875, 1e-15);
  EXPECT_NEAR(p[0], 0.9 + 0.1 / std::sqrt(1.1875 / 0.4375), 1e-14);
}

TEST(Adamw, EpsilonStandsOutsideTheRoot) {
  const AdamwSettings settings{.rate = 1.0, .eps = 1.0, .decay = 0.0};
  EXPECT_NEAR(after(1, settings, 0.0, 4.0), -4.0 / 5.0, 1e-14);
}

TEST(Clip, Factor) {
  EXPECT_DOUBLE_EQ(clip_factor(10.0, 1.0), 1.0 / (10.0 + 1e-6));
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
}

TEST(Metrics, UnitsAreTokensWordsAndBytes) {
  EXPECT_NEAR(perplexity(6.0, 3), 7.389, 5e-4);
  EXPECT_NEAR(perplexity(6.0, 2), 20.086, 5e-4);
  EXPECT_NEAR(bits_per_byte(6.0, 10), 0.8656, 5e-5);
}

}  // namespace
}  // namespace mhar::reference
