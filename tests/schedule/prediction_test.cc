#include "schedule/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// The timeline that the simulator draws for `costs`.
Timeline Measured(const Method& method, const ScheduleOptions& options, int64_t steps,
                  const SimulationCosts& costs) {
  const absl::StatusOr<Schedule> schedule =
      BuildSchedule(method, options, {0, steps * options.microbatches_per_step});
  EXPECT_THAT(schedule, IsOk());
  const absl::StatusOr<SimulationResult> result =
      Simulate(*schedule, costs, {.timeline_spans_max = 1 << 20});
  EXPECT_THAT(result, IsOk());
  return result->timeline;
}

TEST(Prediction, TimelineOfTheSimulatorItself_IsForetoldExactly) {
  for (const Method& method : Methods()) {
    for (int32_t stages : {1, 2, 3, 4}) {
      const int64_t step = StepFor(method, stages, 6);
      const ScheduleOptions options = {.topology = PlacedOn(method, stages, step),
                                       .microbatches_per_step = step};
      SimulationCosts costs;
      for (int32_t s = 0; s < options.topology.stages(); ++s) {
        costs.stages.push_back({.forward_s = 0.010 + 0.001 * s,
                                .backward_input_s = 0.011,
                                .backward_weight_s = 0.009 + 0.002 * s,
                                .update_s = 0.003});
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const StepPrediction prediction,
          PredictSteps(Measured(method, options, 20, costs), method, options));
      // The drain at the end of a continuous range is part of what was measured.
      EXPECT_NEAR(prediction.error(), 0.0, 0.001 + 0.02 * (method.synchronous ? 0 : stages - 1))
          << method.name << " on " << stages << " stages";
      EXPECT_EQ(prediction.overhead_s, 0.0);
    }
  }
}

TEST(Prediction, OverheadPerAction_IsFoundAndForetold) {
  const ScheduleOptions options = {.topology = StraightPipeline(2), .microbatches_per_step = 8};
  SimulationCosts costs;
  costs.stages.assign(2, {.forward_s = 0.01, .backward_input_s = 0.01, .backward_weight_s = 0.01});
  costs.overhead_s = 0.001;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod("1f1b"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const StepPrediction prediction,
      PredictSteps(Measured(*method, options, 20, costs), *method, options));
  EXPECT_NEAR(prediction.overhead_s, 0.001, 0.0001);
  EXPECT_NEAR(prediction.error(), 0.0, 0.01);
}

TEST(MeasureCosts, LatencyOfLinks_IsFoundWhateverTheClocksSay) {
  const ScheduleOptions options = {.topology = StraightPipeline(2), .microbatches_per_step = 8};
  SimulationCosts costs;
  costs.stages.assign(2, {.forward_s = 0.01, .backward_input_s = 0.01, .backward_weight_s = 0.01});
  costs.links = {{.latency_s = 0.002}};
  costs.overhead_s = 0.0001;  // a send is a span then
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod("1f1b"));
  Timeline timeline = Measured(*method, options, 20, costs);
  for (Span& span : timeline.spans) {
    if (span.worker != WorkerId(1)) continue;
    span.start_ns += 500'000;  // worker 1's clock is ahead
    span.end_ns += 500'000;
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationCosts found,
      MeasureCosts(timeline, options.topology, 0, timeline.end_ns(), 1000));
  ASSERT_EQ(found.links.size(), 1u);
  EXPECT_NEAR(found.links[0].latency_s, 0.002, 1e-5);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StepPrediction prediction,
                                PredictSteps(timeline, *method, options));
  EXPECT_NEAR(prediction.error(), 0.0, 0.005);
}

// Every fifth forward takes four times as long, so the mean is 1.6 medians: what a busy machine does.
TEST(Prediction, TailOfTheActions_IsPartOfTheOverhead) {
  const ScheduleOptions options = {.topology = StraightPipeline(1), .microbatches_per_step = 5};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod("1f1b"));
  Timeline timeline = {.workers = 1};
  int64_t now_ns = 0;
  const auto add = [&](ActionKind kind, int64_t microbatch, int64_t duration_ns) {
    const int64_t end_ns = now_ns + duration_ns;
    timeline.spans.push_back(
        {.action = {kind, 0, microbatch}, .start_ns = now_ns, .end_ns = end_ns});
    now_ns = end_ns;
  };
  constexpr int64_t kMs = 1'000'000;
  for (int64_t microbatch = 0; microbatch < 100; ++microbatch) {
    add(ActionKind::kForward, microbatch, microbatch % 5 == 2 ? 40 * kMs : 10 * kMs);
    add(ActionKind::kBackwardInput, microbatch, 10 * kMs);
    add(ActionKind::kBackwardWeight, microbatch, 10 * kMs);
    if (microbatch % 5 == 4) add(ActionKind::kUpdate, 0, 5 * kMs);
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StepPrediction prediction,
                                PredictSteps(timeline, *method, options));
  EXPECT_NEAR(prediction.measured_step_s, 0.185, 1e-9);
  EXPECT_NEAR(prediction.error(), 0.0, 0.01);
  EXPECT_GT(prediction.overhead_s, 0.0);
}

TEST(Prediction, HoleInTheTimeline_MeasuresNoStepAcrossIt) {
  const ScheduleOptions options = {.topology = StraightPipeline(2), .microbatches_per_step = 4};
  SimulationCosts costs;
  costs.stages.assign(2, {.forward_s = 0.01, .backward_input_s = 0.01, .backward_weight_s = 0.01});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod("1f1b"));
  Timeline timeline = Measured(*method, options, 20, costs);
  std::erase_if(timeline.spans, [](const Span& span) {
    return span.action.kind == ActionKind::kBackwardWeight && span.action.microbatch == 7 * 4 + 1;
  });
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StepPrediction prediction,
                                PredictSteps(timeline, *method, options));
  EXPECT_EQ(prediction.steps_measured, 6);  // of the 12 after the hole
}

TEST(Prediction, FewerThanFourSteps_IsRefused) {
  const ScheduleOptions options = {.topology = StraightPipeline(2), .microbatches_per_step = 4};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod("gpipe"));
  EXPECT_THAT(PredictSteps(Measured(*method, options, 3, {}), *method, options),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("3 whole steps")));
  EXPECT_THAT(PredictSteps(Timeline{.workers = 2}, *method, options),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("0 whole steps")));
}

TEST(MeasureCosts, StageWithoutActions_IsNamed) {
  const ScheduleOptions options = {.topology = StraightPipeline(2), .microbatches_per_step = 4};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* method, FindMethod("1f1b"));
  Timeline timeline = Measured(*method, options, 4, {});
  std::erase_if(timeline.spans, [](const Span& span) { return span.action.index == 1; });
  EXPECT_THAT(MeasureCosts(timeline, options.topology, 0, timeline.end_ns(), 100),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("stage 1")));
}

}  // namespace
}  // namespace penstock
