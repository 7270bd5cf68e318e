#include "kernels/random.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <set>

namespace mhar::kernels {
namespace {

using Words = std::array<uint32_t, 4>;

Words words(const RandomBlock& block) { return {block.word[0], block.word[1], block.word[2], block.word[3]}; }

TEST(Random, KnownAnswersOfPhilox) {
  EXPECT_EQ(words(philox({{0, 0, 0, 0}}, 0, 0)), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t ones = 0xffffffff;
  EXPECT_EQ(words(philox({{ones, ones, ones, ones}}, ones, ones)),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0)),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, BitsAreTheWordsOfABlock) {
  // Seed, counter and index sit where the block function has its key and counter words, both halves of each.
  EXPECT_EQ(random_bits(0x299f31d0a4093822, 0x0370734413198a2e, (0x05a308d3243f6a88ULL << 2) + 2),
            philox({{0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0).word[2]);
  EXPECT_EQ(random_bits(0, 0, 0), 0x6627e8d5u);
  EXPECT_EQ(random_bits(0, 0, 3), 0x9b00dbd8u);
}

TEST(Random, EveryArgumentMatters) {
  std::set<uint64_t> seen;
  const uint64_t high = uint64_t{1} << 32;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, high}) {
    for (uint64_t counter : {uint64_t{0}, uint64_t{1}, high}) {
      for (uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{4}, 4 * high}) {
        seen.insert(uint64_t{random_bits(seed, counter, index)} << 32 | random_bits(seed, counter, index + 8));
      }
    }
  }
  EXPECT_EQ(seen.size(), 36u);
}

TEST(Random, UniformAndWithoutCorrelation) {
  constexpr int64_t count = 1 << 20;
  std::array<int64_t, 256> low{}, high{};
  std::array<int64_t, 32> set{};
  int64_t neighbours = 0, updates = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = random_bits(42, 7, i);
    ++low[bits & 255];
    ++high[bits >> 24];
    for (int b = 0; b < 32; ++b) set[b] += bits >> b & 1;
    neighbours += std::popcount(bits ^ random_bits(42, 7, i + 1));
    updates += std::popcount(bits ^ random_bits(42, 8, i));
  }
  for (const auto& buckets : {low, high}) {
    double chi = 0;
    const double expected = count / 256.0;
    for (int64_t n : buckets) chi += (n - expected) * (n - expected) / expected;
    EXPECT_GT(chi, 255 - 5 * std::sqrt(510.0));  // five deviations of chi squared with 255 degrees of freedom
    EXPECT_LT(chi, 255 + 5 * std::sqrt(510.0));
  }
  for (int64_t n : set) EXPECT_NEAR(double(n), count / 2.0, 5 * std::sqrt(count / 4.0));
  // 16 of 32 bits differ on average between neighbours and between updates.
  EXPECT_NEAR(double(neighbours) / count, 16.0, 5 * std::sqrt(8.0 / count) * 2);
  EXPECT_NEAR(double(updates) / count, 16.0, 5 * std::sqrt(8.0 / count) * 2);
}

}  // namespace
}  // namespace mhar::kernels
