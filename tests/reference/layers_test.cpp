#include <numbers>

#include "reference/attention.h"
#include "reference/check.h"
#include "reference/rms_norm.h"
#include "reference/rotary.h"
#include "reference/swiglu.h"

namespace mhar::reference {
namespace {

TEST(RmsNorm, GradientsAgreeWithDifferences) {
  const RmsNormSizes sizes{3, 7, 0.3};
  std::vector<double> x = normal(21, 1), weight = normal(7, 2);
  const std::vector<double> dy = normal(21, 3);
  const auto norm = [&] { return rms_norm<double>(sizes, x, weight); };
  const auto loss = [&] { return dot(norm().output, dy); };
  const auto gradients = rms_norm_backward<double>(sizes, x, weight, norm(), dy);
  expect_gradient(x, gradients.x, loss);
  expect_gradient(weight, gradients.weight, loss);
}

TEST(RmsNorm, OneRowPerHead) {
  const std::vector<double> q{1, 1, 1, 1, 10, 10, 10, 10};
  const std::vector<double> ones4(4, 1.0), ones8(8, 1.0);
  expect_near(rms_norm<double>({2, 4}, q, ones4).output, std::vector<double>(8, 1.0), 1e-6);
  const auto whole = rms_norm<double>({1, 8}, q, ones8).output;  // the fault that this case is about
  EXPECT_NEAR(whole[0], 0.1407, 1e-4);
  EXPECT_NEAR(whole[7], 1.4072, 1e-4);
}

TEST(Rotary, FrequenciesFollowTheBase) {
  EXPECT_NEAR(inverse_frequencies<double>(128, 1e6)[1], 0.805842, 1e-6);
  EXPECT_NEAR(inverse_frequencies<double>(128, 1e4)[1], 0.865964, 1e-6);
  EXPECT_EQ(inverse_frequencies<double>(80, 1e4).size(), 40u);
  EXPECT_EQ(inverse_frequencies<double>(80, 1e4)[0], 1.0);
}

TEST(Rotary, LinearScalingStretchesEveryPair) {
  const auto plain = inverse_frequencies<double>(64, 1e4);
  const auto scaled = inverse_frequencies<double>(64, 1e4, {RotaryScaling::Kind::linear, 4.0});
  for (size_t j = 0; j < plain.size(); ++j) EXPECT_DOUBLE_EQ(scaled[j], plain[j] / 4);
}

TEST(Rotary, Llama3ScalingKeepsFastPairsAndStretchesSlowOnes) {
  const RotaryScaling scaling{RotaryScaling::Kind::llama3, 8.0, 1.0, 4.0, 8192};
  const auto plain = inverse_frequencies<double>(128, 5e5), scaled = inverse_frequencies<double>(128, 5e5, scaling);
  int64_t kept = 0, between = 0, stretched = 0;
  for (size_t j = 0; j < plain.size(); ++j) {
    const double turns = 8192 * plain[j] / (2 * std::numbers::pi);
    if (turns > 4) {
      EXPECT_EQ(scaled[j], plain[j]);
      ++kept;
    } else if (turns < 1) {
      EXPECT_DOUBLE_EQ(scaled[j], plain[j] / 8);
      ++stretched;
    } else {
      EXPECT_GT(scaled[j], plain[j] / 8);
      EXPECT_LT(scaled[j], plain[j]);
      ++between;
    }
    if (j > 0) {
      EXPECT_LT(scaled[j], scaled[j - 1]);
    }
  }
  // What Hugging Face's Llama code computes for these settings, in fp32: kept, two between, stretched.
  EXPECT_NEAR(scaled[28] / 3.21144611e-3, 1.0, 1e-6);
  EXPECT_NEAR(scaled[30] / 1.37189368e-3, 1.0, 1e-6);
  EXPECT_NEAR(scaled[34] / 1.78507791e-4, 1.0, 1e-6);
  EXPECT_NEAR(scaled[35] / 9.55621217e-5, 1.0, 1e-6);
  EXPECT_GT(kept, 0);
  EXPECT_GT(between, 0);
  EXPECT_GT(stretched, 0);
  // Half way: 2.5 of the turns 1 .. 4 keeps one half of the frequency and stretches the other.
  const double theta = std::pow(2.5 * 2 * std::numbers::pi / 8192, -2.0);
  EXPECT_NEAR(inverse_frequencies<double>(4, theta, scaling)[1] / inverse_frequencies<double>(4, theta)[1], 0.5625,
              1e-12);
}

TEST(Rotary, TurnsHalvesAndDependsOnDistanceAlone) {
  const RotarySizes sizes{1, 6, 1, 4};
  const std::vector<double> frequencies{1.0, 0.1};
  std::vector<double> x(24, 0.0);
  for (int64_t t = 0; t < 6; ++t) x[t * 4] = 1.0;  // the first half of pair 0
  const auto turned = rotate<double>(sizes, frequencies, x, Turn::forward);
  EXPECT_NEAR(turned[2 * 4 + 0], std::cos(2.0), 1e-15);
  EXPECT_NEAR(turned[2 * 4 + 2], std::sin(2.0), 1e-15);
  EXPECT_EQ(turned[2 * 4 + 1], 0.0);

  // Heads of a token share its position, and each sequence of the batch starts at 0.
  const auto batch =
      rotate<double>({2, 2, 3, 2}, view(frequencies).first(1), std::vector<double>(24, 1.0), Turn::forward);
  for (int64_t row = 0; row < 12; ++row) {
    const double angle = row / 3 % 2;
    EXPECT_NEAR(batch[row * 2], std::cos(angle) - std::sin(angle), 1e-15) << row;
  }

  std::vector<double> same = normal(4, 1), other = normal(4, 2), q, k;
  for (int64_t t = 0; t < 6; ++t) q.insert(q.end(), same.begin(), same.end());
  for (int64_t t = 0; t < 6; ++t) k.insert(k.end(), other.begin(), other.end());
  q = rotate<double>(sizes, frequencies, q, Turn::forward), k = rotate<double>(sizes, frequencies, k, Turn::forward);
  const auto score = [&](int64_t t, int64_t u) {
    double total = 0;
    for (int64_t c = 0; c < 4; ++c) total += q[t * 4 + c] * k[u * 4 + c];
    return total;
  };
  EXPECT_NEAR(score(3, 1), score(5, 3), 1e-12);
  EXPECT_GT(std::abs(score(3, 1) - score(3, 2)), 1e-3);
}

TEST(Rotary, GradientTurnsBack) {
  const RotarySizes sizes{2, 5, 3, 6};
  const auto frequencies = inverse_frequencies<double>(6, 1e4);
  std::vector<double> x = normal(180, 1);
  const std::vector<double> dy = normal(180, 2);
  expect_gradient(x, rotate<double>(sizes, frequencies, dy, Turn::backward),
                  [&] { return dot(rotate<double>(sizes, frequencies, x, Turn::forward), dy); });
}

TEST(Attention, GradientsAgreeWithDifferences) {
  for (const AttentionSizes sizes :
       {AttentionSizes{2, 4, 4, 2, 3}, AttentionSizes{1, 3, 2, 2, 4}, AttentionSizes{1, 5, 3, 1, 2}}) {
    const int64_t rows = sizes.batch * sizes.length;
    std::vector<double> q = normal(rows * sizes.heads * sizes.head_dim, 1);
    std::vector<double> k = normal(rows * sizes.kv_heads * sizes.head_dim, 2);
    std::vector<double> v = normal(rows * sizes.kv_heads * sizes.head_dim, 3);
    const std::vector<double> dy = normal(q.size(), 4);
    const auto forward = [&] { return attention<double>(sizes, q, k, v); };
    const auto loss = [&] { return dot(forward().output, dy); };
    const auto gradients = attention_backward<double>(sizes, q, k, v, forward(), dy);
    expect_gradient(q, gradients.q, loss);
    expect_gradient(k, gradients.k, loss);
    expect_gradient(v, gradients.v, loss);
  }
}

TEST(Attention, ScaleMaskAndGroups) {
  // One position sees itself alone; two equal keys share; keys ln(3) apart after the scale 1/2 weigh 1 : 3.
  const AttentionSizes sizes{1, 2, 2, 1, 4};
  const std::vector<double> q{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
  const std::vector<double> k{0, 0, 0, 0, 2 * std::log(3.0), 0, 0, 0};
  const std::vector<double> v{1, 0, 0, 0, 5, 0, 0, 0};
  const auto forward = attention<double>(sizes, q, k, v);
  EXPECT_EQ(forward.output[0], 1.0);
  EXPECT_EQ(forward.output[4], 1.0);
  EXPECT_NEAR(forward.output[8], 4.0, 1e-12);   // head 0 at position 1: (1 + 3 * 5) / 4
  EXPECT_NEAR(forward.output[12], 3.0, 1e-12);  // head 1, zero query: the mean
  // Query heads 0, 1 use key/value head 0; 2, 3 use head 1.
  const std::vector<double> zero(4, 0.0), two{7.0, 9.0};
  expect_near(attention<double>({1, 1, 4, 2, 1}, zero, two, two).output, {7, 7, 9, 9}, 0);
}

TEST(Swiglu, ValuesAndGradients) {
  std::vector<double> gate = normal(9, 1, 3.0), up = normal(9, 2);
  const std::vector<double> dy = normal(9, 3);
  const auto loss = [&] { return dot(swiglu<double>(gate, up), dy); };
  const auto gradients = swiglu_backward<double>(gate, up, dy);
  expect_gradient(gate, gradients.gate, loss);
  expect_gradient(up, gradients.up, loss);
  const std::vector<double> large{1000.0, -1000.0, 0.0}, two(3, 2.0);
  expect_near(swiglu<double>(large, two), {2000, 0, 0}, 0);
}

}  // namespace
}  // namespace mhar::reference
