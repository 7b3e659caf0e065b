#include "coordinator/remaining_time.h"

#include <gtest/gtest.h>

#include <vector>

namespace penstock {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// Tells of steps `from` to `to`, of `step_s` seconds each, and `cut_s` more after every step in `cuts`.
// Returns when the last one was done.
int64_t TellSteps(RemainingTime& remaining, int64_t from, int64_t to, int64_t step_s,
                  const std::vector<int64_t>& cuts, int64_t cut_s, int64_t now_ns = 0) {
  for (int64_t step = from; step <= to; ++step) {
    now_ns += step_s * kSecondNs;
    for (const int64_t cut : cuts) {
      if (cut == step - 1) now_ns += cut_s * kSecondNs;
    }
    remaining.OnStep(step, now_ns);
  }
  return now_ns;
}

TEST(RemainingTimeTest, BeforeTheSecondStep_IsUnknown) {
  RemainingTime remaining(100, {});
  EXPECT_EQ(remaining.Seconds(), std::nullopt);
  remaining.OnStep(1, kSecondNs);
  EXPECT_EQ(remaining.Seconds(), std::nullopt);
  remaining.OnStep(2, 4 * kSecondNs);
  EXPECT_DOUBLE_EQ(remaining.Seconds().value(), 98 * 3.0);
}

TEST(RemainingTimeTest, EqualStepsAndCuts_IsExactlyWhatIsLeft) {
  const std::vector<int64_t> cuts = {10, 20, 30, 40};
  RemainingTime remaining(40, cuts);
  int64_t now_ns = 0;
  for (int64_t step = 1; step <= 40; ++step) {
    now_ns = TellSteps(remaining, step, step, 2, cuts, 7, now_ns);
    if (step < 11) continue;  // no cut has been paid for
    // The cut of this step, if it has one, is yet to come.
    const int64_t cuts_left = 4 - (step - 1) / 10;
    EXPECT_DOUBLE_EQ(remaining.Seconds().value(), 2.0 * (40 - step) + 7.0 * cuts_left) << step;
  }
}

TEST(RemainingTimeTest, OneSlowStep_ChangesNothing) {
  RemainingTime remaining(100, {});
  int64_t now_ns = TellSteps(remaining, 1, 20, 1, {}, 0);
  now_ns = TellSteps(remaining, 21, 21, 500, {}, 0, now_ns);
  TellSteps(remaining, 22, 30, 1, {}, 0, now_ns);
  EXPECT_DOUBLE_EQ(remaining.Seconds().value(), 70.0);
}

TEST(RemainingTimeTest, StepsBecomeSlower_TheLastOnesCount) {
  RemainingTime remaining(1000, {});
  const int64_t now_ns = TellSteps(remaining, 1, 100, 1, {}, 0);
  TellSteps(remaining, 101, 100 + RemainingTime::kWindow, 4, {}, 0, now_ns);
  EXPECT_DOUBLE_EQ(remaining.Seconds().value(), 4.0 * (900 - RemainingTime::kWindow));
}

TEST(RemainingTimeTest, CutAfterEveryStep_CountsStepsWithTheirCuts) {
  const std::vector<int64_t> cuts = {1, 2, 3, 4, 5, 6};
  RemainingTime remaining(6, cuts);
  TellSteps(remaining, 1, 3, 1, cuts, 9);
  EXPECT_DOUBLE_EQ(remaining.Seconds().value(), 3 * 10.0);
}

TEST(RemainingTimeTest, ResumedRun_CountsItsOwnSteps) {
  RemainingTime remaining(100, {});
  TellSteps(remaining, 91, 92, 3, {}, 0);
  EXPECT_DOUBLE_EQ(remaining.Seconds().value(), 8 * 3.0);
}

}  // namespace
}  // namespace penstock
