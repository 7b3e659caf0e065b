#include "planner/cost/run_time.h"

#include <gtest/gtest.h>

#include "base/status.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int32_t kStages = 4;
constexpr int64_t kMicrobatches = 8;  // of GoodJob

absl::StatusOr<RunTime> RunOf(const std::string& method, const std::vector<Cut>& cuts) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_training()->mutable_clip()->set_layer_norm(1.0);
  spec.mutable_pipeline()->set_method(method);
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  SimulationCosts costs;
  costs.stages.assign(kStages,
                      {.forward_s = 1.0, .backward_input_s = 1.0, .backward_weight_s = 1.0});
  return SimulateRun(job, ScheduleOptionsOf(job, StraightPipeline(kStages)), 0, cuts, costs);
}

TEST(SimulateRun, FlushedSteps_TakeTheClosedForm) {
  for (const std::string method : {"gpipe", "1f1b"}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const RunTime run, RunOf(method, {{.step = 2}, {.step = 3}}));
    const double step_s = 3.0 * (kMicrobatches + kStages - 1);
    ASSERT_EQ(run.cut_s.size(), 2u);
    EXPECT_NEAR(run.cut_s[0], 2 * step_s, 1e-6) << method;
    EXPECT_NEAR(run.cut_s[1], 3 * step_s, 1e-6) << method;
    EXPECT_NEAR(run.bubble_ratio, (kStages - 1.0) / (kMicrobatches + kStages - 1), 1e-9) << method;
  }
}

TEST(SimulateRun, StreamedSteps_FillThePipelineOnceForEachCut) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const RunTime run,
                                RunOf("pipedream", {{.step = 5}, {.step = 10}, {.step = 20}}));
  const auto range_s = [](int64_t steps) {
    return 3.0 * static_cast<double>(steps * kMicrobatches + kStages - 1);
  };
  EXPECT_NEAR(run.cut_s[0], range_s(5), 1e-6);
  EXPECT_NEAR(run.cut_s[1], 2 * range_s(5), 1e-6);
  EXPECT_NEAR(run.cut_s[2], 2 * range_s(5) + range_s(10), 1e-6);
  for (int32_t stage = 0; stage < kStages; ++stage) {
    EXPECT_EQ(run.stages[stage].staleness.max, kStages - 1 - stage);
    EXPECT_EQ(run.stages[stage].staleness.updates, 20 * kMicrobatches);
  }
}

}  // namespace
}  // namespace penstock
