#include "data/sampler.h"

#include <gmock/gmock.h>

#include <set>

#include "base/temporary_folder.h"

namespace mhar::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> take(Sampler& sampler, int64_t first, int64_t count) {
  std::vector<int64_t> windows;
  for (int64_t i = first; i < first + count; ++i) {
    const std::span<const int64_t> batch = sampler.batch(i);
    windows.insert(windows.end(), batch.begin(), batch.end());
  }
  return windows;
}

// Golden: a refactor, another compiler and another machine give the same order.
TEST(Sampler, OrderIsGolden) {
  Sampler sampler(10, 2, 42);
  EXPECT_THAT(take(sampler, 0, 5), ElementsAre(6, 8, 0, 4, 1, 5, 9, 3, 2, 7));
  EXPECT_THAT(take(sampler, 5, 5), ElementsAre(9, 6, 0, 4, 8, 3, 1, 2, 7, 5));
}

TEST(Sampler, EveryEpochHasEveryWindowOnceInAnotherOrder) {
  Sampler sampler(1000, 10, 7);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> order = take(sampler, epoch * 100, 100);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 1000u);
    EXPECT_EQ(*std::ranges::min_element(order), 0);
    EXPECT_EQ(*std::ranges::max_element(order), 999);
    orders.insert(std::move(order));
  }
  EXPECT_EQ(orders.size(), 5u);
}

TEST(Sampler, SeedsDiffer) {
  Sampler a(100, 10, 1);
  Sampler b(100, 10, 2);
  EXPECT_NE(take(a, 0, 10), take(b, 0, 10));
}

TEST(Sampler, DropsTheLastPartialBatch) {
  Sampler sampler(11, 4, 42);
  EXPECT_EQ(sampler.batches_per_epoch(), 2);
  const std::vector<int64_t> epoch = take(sampler, 0, 2);
  EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 8u);
}

TEST(Sampler, GoesOnAnywhereWithoutThePast) {
  Sampler whole(100, 7, 3);
  const std::vector<int64_t> all = take(whole, 0, 60);
  for (const int64_t from : {1, 13, 14, 15, 59}) {
    Sampler resumed(100, 7, 3);
    EXPECT_EQ(take(resumed, from, 60 - from), std::vector<int64_t>(all.begin() + from * 7, all.end())) << from;
  }
  EXPECT_EQ(take(whole, 0, 60), all) << "going back works too";
}

TEST(Sampler, BatchesDoNotDependOnTheirSize) {
  Sampler small(64, 4, 9);
  Sampler large(64, 16, 9);
  EXPECT_EQ(take(small, 0, 16), take(large, 0, 4));
}

TEST(Sampler, RefusesTooLittleText) {
  EXPECT_THAT(input_error([] { Sampler sampler(0, 8, 1); }),
              AllOf(HasSubstr("training split"), HasSubstr("got less than one window"), HasSubstr("--sequence")));
  EXPECT_THAT(input_error([] { Sampler sampler(7, 8, 1); }),
              AllOf(HasSubstr("one batch of 8 windows, got 7 windows"), HasSubstr("--global-batch")));
  EXPECT_THAT(input_error([] { Sampler sampler(7, 0, 1); }),
              HasSubstr("--global-batch: wanted at least 1 sequence, got 0"));
}

}  // namespace
}  // namespace mhar::data
