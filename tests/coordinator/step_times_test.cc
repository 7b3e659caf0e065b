#include "coordinator/step_times.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(StepTimes, FirstStepOfARun_DoesNotCount) {
  StepTimes times(/*first_step=*/10, {}, /*window=*/5);
  EXPECT_FALSE(times.OnStep(11, 1000 * kMs));
  EXPECT_EQ(times.MedianSeconds(), std::nullopt);
  EXPECT_TRUE(times.OnStep(12, 1100 * kMs));
  EXPECT_DOUBLE_EQ(*times.MedianSeconds(), 0.1);
}

TEST(StepTimes, StepAfterACut_DoesNotCount) {
  StepTimes times(0, {2, 4}, 5);
  EXPECT_FALSE(times.OnStep(1, 100 * kMs));
  EXPECT_TRUE(times.OnStep(2, 200 * kMs));
  EXPECT_FALSE(times.OnStep(3, 9'000 * kMs)) << "validated in between";
  EXPECT_TRUE(times.OnStep(4, 9'100 * kMs));
  EXPECT_FALSE(times.OnStep(5, 20'000 * kMs));
  EXPECT_DOUBLE_EQ(*times.MedianSeconds(), 0.1);
}

TEST(StepTimes, StepThatIsMissing_TakesTheNextOneAlong) {
  StepTimes times(0, {}, 5);
  times.OnStep(1, 100 * kMs);
  EXPECT_FALSE(times.OnStep(3, 300 * kMs));
  EXPECT_TRUE(times.OnStep(4, 400 * kMs));
}

TEST(StepTimes, ClockThatStandsStill_TellsNothing) {
  StepTimes times(0, {}, 5);
  for (int64_t step = 1; step < 10; ++step) EXPECT_FALSE(times.OnStep(step, 0));
  EXPECT_EQ(times.MedianSeconds(), std::nullopt);
}

TEST(StepTimes, Median_IsThatOfTheWindowAlone) {
  StepTimes times(0, {}, 3);
  int64_t at_ns = 0;
  times.OnStep(1, at_ns);
  const int64_t durations_ms[] = {500, 500, 500, 10, 900, 20, 30};
  const double medians[] = {0.5, 0.5, 0.5, 0.5, 0.5, 0.02, 0.03};
  for (int i = 0; i < 7; ++i) {
    at_ns += durations_ms[i] * kMs;
    EXPECT_TRUE(times.OnStep(i + 2, at_ns));
    EXPECT_DOUBLE_EQ(*times.MedianSeconds(), medians[i]) << i;
  }
}

}  // namespace
}  // namespace penstock
