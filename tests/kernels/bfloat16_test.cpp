#include "kernels/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/random.h"

namespace mhar::kernels {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();  // above the largest bfloat16, 0x7F7F
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Bfloat16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float value = bfloat16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bfloat16_to_float(bfloat16_nearest(value)))) << bits;
      EXPECT_TRUE(std::isnan(bfloat16_to_float(bfloat16_stochastic(value, 0xFFFF)))) << bits;
    } else {
      EXPECT_EQ(bfloat16_nearest(value), bits);
      EXPECT_EQ(bfloat16_stochastic(value, 0), bits);
      EXPECT_EQ(bfloat16_stochastic(value, 0xFFFF), bits);
    }
  }
}

TEST(Bfloat16, NearestTiesToEven) {
  EXPECT_EQ(bfloat16_nearest(float_from_bits(0x3F808000)), 0x3F80);  // tie, even below
  EXPECT_EQ(bfloat16_nearest(float_from_bits(0x3F818000)), 0x3F82);  // tie, even above
  EXPECT_EQ(bfloat16_nearest(float_from_bits(0x3F808001)), 0x3F81);
  EXPECT_EQ(bfloat16_nearest(float_from_bits(0x3F817FFF)), 0x3F81);
  EXPECT_EQ(bfloat16_nearest(float_from_bits(0xBF818000)), 0xBF82);
  EXPECT_EQ(bfloat16_nearest(float_from_bits(0x00008001)), 0x0001);  // subnormal
}

TEST(Bfloat16, SpecialValues) {
  EXPECT_EQ(bfloat16_nearest(kInfinity), 0x7F80);
  EXPECT_EQ(bfloat16_nearest(-kInfinity), 0xFF80);
  EXPECT_EQ(bfloat16_nearest(kLargest), 0x7F80);
  EXPECT_EQ(bfloat16_nearest(-0.0f), 0x8000);
  // The payload of this NaN lies in the dropped half: without care it would become an infinity.
  EXPECT_EQ(bfloat16_nearest(float_from_bits(0x7F800001)), 0x7FC0);
  EXPECT_EQ(bfloat16_nearest(float_from_bits(0xFFFFFFFF)), 0xFFFF);
  for (uint32_t random : {0u, 1u, 0x8000u, 0xFFFFu, 0xFFFFFFFFu}) {
    EXPECT_EQ(bfloat16_stochastic(kInfinity, random), 0x7F80);
    EXPECT_EQ(bfloat16_stochastic(-kInfinity, random), 0xFF80);
    EXPECT_EQ(bfloat16_stochastic(kLargest, random), 0x7F7F);
    EXPECT_EQ(bfloat16_stochastic(-kLargest, random), 0xFF7F);
    EXPECT_EQ(bfloat16_stochastic(-0.0f, random), 0x8000);
    EXPECT_EQ(bfloat16_stochastic(float_from_bits(0x7F800001), random), 0x7FC0);
    EXPECT_EQ(bfloat16_stochastic(float_from_bits(0xFFFFFFFF), random), 0xFFFF);
  }
}

TEST(Bfloat16, StochasticThreshold) {
  const float quarter = float_from_bits(0xBF804000);  // a quarter of the way from -1 to its neighbour
  EXPECT_EQ(bfloat16_stochastic(quarter, 0xBFFF), 0xBF80);
  EXPECT_EQ(bfloat16_stochastic(quarter, 0xC000), 0xBF81);
  EXPECT_EQ(bfloat16_stochastic(quarter, 0xFFFF0000), 0xBF80);  // the upper half does not count
}

TEST(Bfloat16, StochasticRoundingIsUnbiased) {
  for (const float value : {1.001f, -0.3333f, 3.0e-39f, 123.456f}) {
    double exact = 0;  // over all 65,536 random values the mean is the value itself
    for (uint32_t random = 0; random <= 0xFFFF; ++random)
      exact += bfloat16_to_float(bfloat16_stochastic(value, random));
    EXPECT_NEAR(exact / 65536, double(value), 1e-9 * std::abs(double(value)));
    double drawn = 0;
    constexpr int64_t count = 200000;
    for (int64_t i = 0; i < count; ++i) drawn += bfloat16_to_float(bfloat16_stochastic(value, random_bits(1, 2, i)));
    const uint16_t below = static_cast<uint16_t>(float_bits(value) >> 16);
    const double gap = std::abs(double(bfloat16_to_float(below + 1)) - double(bfloat16_to_float(below)));
    EXPECT_NEAR(drawn / count, double(value), 5 * 0.5 * gap / std::sqrt(double(count)));
  }
}

}  // namespace
}  // namespace mhar::kernels
