#include "reference/cross_entropy.h"

#include "reference/check.h"

namespace mhar::reference {
namespace {

using Targets = std::vector<int64_t>;

TEST(CrossEntropy, GradientsAgreeWithDifferences) {
  const Targets targets{2, -1, 0, 4};
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    for (const double z : {0.0, 0.3}) {
      const CrossEntropySizes sizes{4, 5, reduction, z};
      std::vector<double> logits = normal(20, 1, 2.0);
      const auto all = [&] { return cross_entropy<double>(sizes, logits, targets); };
      EXPECT_EQ(all().z_loss > 0, z > 0);
      expect_gradient(logits, all().gradient, [&] { return all().loss + all().z_loss; });
    }
  }
}

TEST(CrossEntropy, IgnoredTargetsAndReductions) {
  const std::vector<double> logits = normal(9, 2);
  const auto mean = cross_entropy<double>({3, 3, Reduction::mean}, logits, Targets{1, -100, 0});
  const auto sum = cross_entropy<double>({3, 3, Reduction::sum}, logits, Targets{1, -100, 0});
  EXPECT_EQ(mean.counted, 2);
  EXPECT_NEAR(mean.loss, sum.loss / 2, 1e-15);
  for (int64_t c = 3; c < 6; ++c) EXPECT_EQ(mean.gradient[c], 0.0);
  const auto without = cross_entropy<double>({1, 3, Reduction::mean}, view(logits).first(3), Targets{1});
  EXPECT_NEAR(sum.loss - without.loss, mean.log_normaliser[2] - logits[6], 1e-12);
}

TEST(CrossEntropy, NoCountedTargetIsZero) {
  const auto result = cross_entropy<double>({2, 3, Reduction::mean, 1.0}, normal(6, 3), Targets{-1, -1});
  EXPECT_EQ(result.counted, 0);
  EXPECT_EQ(result.loss, 0.0);
  EXPECT_EQ(result.z_loss, 0.0);
  EXPECT_EQ(result.gradient, std::vector<double>(6, 0.0));
}

TEST(CrossEntropy, MicrobatchesWeighByTheirTokens) {
  // Microbatch A: one token, loss 2; B: three tokens, loss 1 each. Two classes: loss l means the other logit is ln(e^l
  // - 1).
  const double two = std::log(std::exp(2.0) - 1), one = std::log(std::exp(1.0) - 1);
  const std::vector<double> first{0, two}, second{0, one, 0, one, 0, one};
  const auto a = cross_entropy<double>({1, 2, Reduction::sum}, first, Targets{0});
  const auto b = cross_entropy<double>({3, 2, Reduction::sum}, second, Targets{0, 0, 0});
  EXPECT_NEAR((a.loss + b.loss) / double(a.counted + b.counted), 1.25, 1e-12);
}

TEST(CrossEntropy, GradientAtTheTargetKeepsItsDigits) {
  std::vector<float> logits(1024, 0.0f);
  logits[7] = 13.8373f;
  const auto result = cross_entropy<float>({1, 1024}, logits, Targets{7});
  EXPECT_NEAR(result.gradient[7], -0.001f, 1e-5f);
  EXPECT_NEAR(result.loss, 0.001f, 1e-5f);
  // Nearly certain: p - 1 formed as a difference is 0 in fp32.
  logits[7] = 30.0f;
  const auto certain = cross_entropy<float>({1, 1024}, logits, Targets{7});
  EXPECT_NEAR(certain.gradient[7] / (-1023 * std::exp(-30.0)), 1.0, 1e-4);
}

TEST(CrossEntropy, WideVocabulary) {
  const std::vector<float> logits(2 * 151936, 0.0f);
  const auto result = cross_entropy<float>({2, 151936}, logits, Targets{0, 151935});
  EXPECT_NEAR(result.loss, 11.931215f, 2e-6f);  // 11.9375 where it was rounded to bfloat16
  EXPECT_NEAR(result.gradient[2 * 151936 - 1], (1.0 / 151936 - 1) / 2, 1e-6);
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  const std::vector<float> logits{1e4f, -1e4f, 0.0f};
  const auto result = cross_entropy<float>({1, 3}, logits, Targets{1});
  EXPECT_EQ(result.loss, 2e4f);
  EXPECT_EQ(result.gradient[0], 1.0f);
  EXPECT_EQ(result.gradient[1], -1.0f);
}

}  // namespace
}  // namespace mhar::reference
