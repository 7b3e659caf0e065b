#include "worker/stage_meter.h"

#include <gtest/gtest.h>

#include "tests/support/manual_clock.h"
#include "tests/support/status_matchers.h"
#include "worker/action_timer.h"

namespace penstock {
namespace {

TEST(DurationMeter, MedianNs_OfTheMostRecent_ForgetsOlderOnes) {
  DurationMeter meter(5);
  EXPECT_EQ(meter.MedianNs(), 0);
  for (int64_t ns : {1000, 1000, 1000, 1, 9, 5, 7, 3}) meter.Add(ns);
  EXPECT_EQ(meter.MedianNs(), 5);
  EXPECT_EQ(meter.count(), 8);
  EXPECT_EQ(meter.total_ns(), 3025);
}

TEST(StageMeter, Publish_AllFields_ComeBack) {
  const StageCounts counts = {.staleness = {1, 2, 3, 4},
                              .version_drift = {5, 6, 7, 8},
                              .versions_live = 9,
                              .versions_peak = 10,
                              .activations_live = 11,
                              .activations_peak = 12};
  StageMeter meter(4);
  StageDelays delays;
  for (int updates = 0; updates <= DelayCounts::kExact; ++updates) {
    delays.staleness.Add(updates, 100 + updates);
    delays.version_drift.Add(updates, 200 + updates);
  }
  meter.Publish(counts, delays);
  EXPECT_EQ(meter.counts(), counts);
  EXPECT_EQ(meter.delays(), delays);
}

// Adds busy time to a meter, and ends a step after so much time of training in all.
void EndStep(StageMeter& meter, int64_t busy_ns, int64_t window_ns) {
  meter.AddSpan({.lane = Lane::kCompute, .start_ns = 0, .end_ns = busy_ns});
  meter.EndStep(window_ns);
}

TEST(StageMeter, RecentBubble_IsThatOfTheLastSteps) {
  StageMeter meter(4);
  EXPECT_FALSE(meter.RecentBubble().has_value());
  EndStep(meter, 25, 100);
  EXPECT_DOUBLE_EQ(*meter.RecentBubble(), 0.75);
  EndStep(meter, 75, 200);
  EXPECT_DOUBLE_EQ(*meter.RecentBubble(), 0.5) << "of both steps";
  for (int step = 1; step <= StageMeter::kBubbleSteps; ++step) EndStep(meter, 90, 200 + 100 * step);
  EXPECT_NEAR(*meter.RecentBubble(), 0.1, 1e-12) << "the first two are forgotten";
}

TEST(StageMeter, RecentBubble_OfADeviceThatLagsBehind_IsARatio) {
  StageMeter meter(4);
  EndStep(meter, 150, 100);
  EXPECT_EQ(*meter.RecentBubble(), 0.0);
}

TEST(StageMeter, Stash_IsShownNowAndAtMost) {
  StageMeter meter(4);
  meter.PublishStash(300, 20);
  meter.PublishStash(100, 0);
  EXPECT_EQ(meter.stash_bytes(), 100);
  EXPECT_EQ(meter.stash_bytes_peak(), 300);
  EXPECT_EQ(meter.host_stash_bytes(), 0);
  EXPECT_EQ(meter.host_stash_bytes_peak(), 20);
}

class ActionTimerTest : public ::testing::Test {
 protected:
  void After(int64_t ns, Lane lane, Wait wait = Wait::kNone) {
    clock_.now_ns += ns;
    timer_.Lap(lane, wait);
  }

  ManualClock clock_;
  TimelineRecorder recorder_{WorkerId(0), 16};
  StageMeter meter_{16};
  ActionTimer timer_{clock_, recorder_, /*device=*/nullptr};
};

TEST_F(ActionTimerTest, Laps_OfOneAction_SplitWaitingFromWork) {
  const Action forward = {ActionKind::kForward, 0, 7};
  ASSERT_THAT(timer_.Begin(forward, &meter_), IsOk());
  After(30, Lane::kWait, Wait::kData);
  After(500, Lane::kCompute);
  timer_.End();
  EXPECT_EQ(meter_.waiting_ns(Wait::kData), 30);
  EXPECT_EQ(meter_.lane_ns(Lane::kCompute), 500);
  EXPECT_EQ(meter_.durations(ActionKind::kForward).MedianNs(), 500);
  const std::vector<Span> spans = recorder_.Recent();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].end_ns, spans[1].start_ns);
  EXPECT_EQ(spans[1].action, forward);
}

TEST_F(ActionTimerTest, Laps_OfWorkInPieces_MakeOneDuration) {
  ASSERT_THAT(timer_.Begin({ActionKind::kNorm}, &meter_), IsOk());
  After(10, Lane::kCollective);
  After(1000, Lane::kWait, Wait::kCollective);
  After(20, Lane::kCollective);
  timer_.End();
  EXPECT_EQ(meter_.durations(ActionKind::kNorm).count(), 1);
  EXPECT_EQ(meter_.durations(ActionKind::kNorm).total_ns(), 30);
}

TEST_F(ActionTimerTest, End_AfterWaitingOnly_CountsNoDuration) {
  ASSERT_THAT(timer_.Begin({ActionKind::kRecvActivation}, &meter_), IsOk());
  After(10, Lane::kWait, Wait::kInput);
  timer_.End();
  EXPECT_EQ(meter_.durations(ActionKind::kRecvActivation).count(), 0);
}

TEST_F(ActionTimerTest, Begin_WithoutMeter_KeepsNothing) {
  ASSERT_THAT(timer_.Begin({ActionKind::kForward}, nullptr), IsOk());
  After(10, Lane::kCompute);
  timer_.End();
  EXPECT_TRUE(recorder_.Recent().empty());
}

TEST_F(ActionTimerTest, TimeBetweenActions_IsOverheadOfTheSecond) {
  ASSERT_THAT(timer_.Begin({ActionKind::kForward, 0, 7}, &meter_), IsOk());
  After(500, Lane::kCompute);
  timer_.End();
  EXPECT_EQ(meter_.between_ns(), 0) << "nothing came before the first";
  clock_.now_ns += 40;
  ASSERT_THAT(timer_.Begin({ActionKind::kForward, 0, 8}, &meter_), IsOk());
  EXPECT_EQ(meter_.between_ns(), 40);
  After(500, Lane::kCompute);
  timer_.End();
  clock_.now_ns += 40;  // of which 30 were waited for what the next action would be
  ASSERT_THAT(timer_.Begin({ActionKind::kForward, 0, 9}, &meter_, 30), IsOk());
  EXPECT_EQ(meter_.between_ns(), 50);
  After(500, Lane::kCompute);
  timer_.End();
}

TEST_F(ActionTimerTest, TimeThatIsNotTraining_IsNoOverhead) {
  ASSERT_THAT(timer_.Begin({ActionKind::kForward, 0, 7}, &meter_), IsOk());
  After(500, Lane::kCompute);
  timer_.End();
  timer_.Pause();  // held at a gate, or between two ranges
  clock_.now_ns += 1000;
  ASSERT_THAT(timer_.Begin({ActionKind::kForward, 0, 8}, &meter_), IsOk());
  timer_.End();
  ASSERT_THAT(timer_.Begin({ActionKind::kForward, 0, 9}, /*meter=*/nullptr), IsOk());  // validation
  After(500, Lane::kCompute);
  timer_.End();
  ASSERT_THAT(timer_.Begin({ActionKind::kForward, 0, 10}, &meter_), IsOk());
  EXPECT_EQ(meter_.between_ns(), 0);
}

}  // namespace
}  // namespace penstock
