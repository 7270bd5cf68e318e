#include "config/schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace mhar {
namespace {

// The list of the method, section 4 ("The schedule counts updates from 1").
const std::vector<double> published = {0.25, 0.5, 0.75, 1, 0.939711, 0.775, 0.55, 0.325, 0.160289, 0.1};

TEST(Schedule, TenRates) {
  const Schedule schedule{10, 4, 1.0, 0.1};
  for (int64_t u = 1; u <= 10; ++u) EXPECT_NEAR(schedule.rate(u), published[u - 1], 5e-7) << u;
}

TEST(Schedule, ResumedAtAnyUpdateGivesTheSameBits) {
  for (int64_t stop = 1; stop < 10; ++stop) {
    const Schedule before{10, 4, 1.0, 0.1}, after{10, 4, 1.0, 0.1};
    for (int64_t u = stop + 1; u <= 10; ++u) EXPECT_EQ(after.rate(u), before.rate(u)) << stop << " " << u;
  }
}

TEST(Schedule, WithoutWarmUpFallsFromTheStart) {
  const Schedule schedule{4, 0, 2.0, 0.0};
  EXPECT_NEAR(schedule.rate(1), 1.7071067811865475, 1e-12);
  EXPECT_NEAR(schedule.rate(2), 1.0, 1e-12);
  EXPECT_EQ(schedule.rate(4), 0.0);
}

TEST(Schedule, WarmUpAlone) {
  const Schedule schedule{4, 4, 2.0, 0.1};
  EXPECT_EQ(schedule.rate(1), 0.5);
  EXPECT_EQ(schedule.rate(4), 2.0);
  EXPECT_NEAR(schedule.rate(5), 0.2, 1e-15);
}

TEST(Schedule, StaysAtTheFloorAfterTheEnd) {
  const Schedule schedule{10, 4, 1.0, 0.1};
  EXPECT_EQ(schedule.rate(10), schedule.rate(11));
  EXPECT_EQ(schedule.rate(1000), 0.1);
}

}  // namespace
}  // namespace mhar
