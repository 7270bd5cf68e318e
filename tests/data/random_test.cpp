#include "data/random.h"

#include <gmock/gmock.h>

#include <array>
#include <vector>

namespace mhar::data {
namespace {

using testing::ElementsAre;

// The published first outputs of SplitMix64 started at 0 and at 1234567.
TEST(Random, FinaliserIsSplitMix64) {
  EXPECT_EQ(mix(golden_step), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(mix(2 * golden_step), 0x6E789E6AA1B965F4u);
  EXPECT_EQ(mix(1234567 + golden_step), 6457827717110365317u);
  EXPECT_EQ(mix(1234567 + 2 * golden_step), 3203168211198807973u);
}

// tests/python/test_data.py holds the same numbers.
TEST(Random, DrawsAreGolden) {
  EXPECT_EQ(draw(42, 0), 0x989B3F130A063869u);
  EXPECT_EQ(draw(42, 1), 0x290DB4BF2570DED7u);
  EXPECT_EQ(draw(42, 2), 0x2A990BE63A01B2D5u);
  EXPECT_EQ(draw(7, 1000000), 0xBEF2599E0F5503CEu);
}

TEST(Random, BelowHasNoBias) {
  Random random(1, 0);
  std::array<int, 3> counts{};
  for (int i = 0; i < 30000; ++i) ++counts[random.below(3)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
  // A bound just above 2^63 throws away nearly half of all values; a plain modulo would make low results twice as
  // likely.
  const uint64_t bound = (uint64_t{1} << 63) + 1;
  int low = 0;
  for (int i = 0; i < 10000; ++i) low += random.below(bound) < bound / 2 ? 1 : 0;
  EXPECT_NEAR(low, 5000, 250);
  EXPECT_EQ(random.below(1), 0u);
}

std::vector<uint64_t> chosen(uint64_t seed, double fraction, uint64_t documents) {
  std::vector<uint64_t> found;
  for (uint64_t i = 0; i < documents; ++i) {
    if (in_validation(seed, i, fraction)) found.push_back(i);
  }
  return found;
}

// tests/python/test_data.py holds the same lists.
TEST(Split, IsGolden) {
  EXPECT_THAT(chosen(42, 0.2, 40), ElementsAre(1, 2, 3, 7, 13, 14, 16, 18, 26, 29, 30, 32));
  EXPECT_THAT(chosen(43, 0.2, 40), ElementsAre(1, 6, 9, 33, 34));
}

TEST(Split, TakesItsFraction) {
  EXPECT_NEAR(static_cast<double>(chosen(42, 0.05, 100000).size()), 5000.0, 250.0);
  EXPECT_TRUE(chosen(42, 0.0, 1000).empty());
}

TEST(Split, GivesEachSplitOneOfTheFirstTwo) {
  bool first = false;
  bool second = false;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<uint64_t> found = chosen(seed, 1e-9, 2);
    ASSERT_EQ(found.size(), 1u);
    (found[0] == 0 ? first : second) = true;
  }
  EXPECT_TRUE(first && second) << "the seed decides which";
}

}  // namespace
}  // namespace mhar::data
