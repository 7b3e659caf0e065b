#include "coordinator/run_feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/simulated_cluster.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two workers; 0.1 s, 1000 and 2000 bytes of memory, 500 and 250 bytes sent.
v1::JobSpec PredictedJob(int64_t steps) {
  v1::JobSpec spec = SmallJob(steps, 2);
  v1::PredictionSpec& prediction = *spec.mutable_prediction();
  prediction.set_step_seconds(0.1);
  prediction.add_memory_bytes(1000);
  prediction.add_memory_bytes(2000);
  prediction.add_sent_bytes(500);
  prediction.add_sent_bytes(250);
  spec.mutable_feedback()->set_drift_steps(4);
  return spec;
}

v1::Plan PlanOfTwo() {
  v1::Plan plan;
  for (int i = 0; i < 2; ++i) {
    v1::StageAssignment& stage = *plan.add_stages();
    stage.set_stage(i);
    stage.set_worker_index(i);
    stage.set_worker(i == 0 ? "alpha" : "beta");
  }
  return plan;
}

// Steps from `first` on, `ms` each. Returns what was told.
std::vector<std::string> Train(RunFeedback& feedback, int64_t first, int64_t steps, int64_t ms) {
  std::vector<std::string> told;
  for (int64_t step = first; step < first + steps; ++step) {
    v1::StepDone done;
    done.set_step(step);
    done.set_monotonic_ns(step * ms * kNsPerMs);
    const RunFeedback::News news = feedback.OnStep(done);
    EXPECT_EQ(news.text.empty(), news.turn == Drift::Turn::kNone);
    if (!news.text.empty()) told.push_back(news.text);
  }
  return told;
}

google::protobuf::RepeatedPtrField<v1::StageReport> Report(int32_t stage, int64_t memory,
                                                           int64_t sent, int64_t validation = 0) {
  google::protobuf::RepeatedPtrField<v1::StageReport> reports;
  v1::StageReport& report = *reports.Add();
  report.set_stage(stage);
  report.set_peak_memory_bytes(memory);
  report.set_bytes_sent(sent);
  report.set_validation_bytes_sent(validation);
  return reports;
}

v1::Feedback Written(const RunFeedback& feedback) {
  v1::Feedback written;
  feedback.WriteTo(written);
  return written;
}

TEST(RunFeedback, StepsThatTakeLonger_AreToldWithTheAdvice) {
  RunFeedback feedback;
  feedback.Begin(PredictedJob(100), PlanOfTwo(), 0, {});
  EXPECT_THAT(
      Train(feedback, 1, 50, 210),
      ElementsAre(
          "steps take 0.21 s, 0.1 s were predicted (+110 %), in the median of the last 4 steps: "
          "`penstock plan JOB.yaml --coordinator HOST:PORT` makes a new plan"));
  const v1::Feedback written = Written(feedback);
  EXPECT_TRUE(written.drifts());
  EXPECT_EQ(written.drifts_told(), 1);
  EXPECT_DOUBLE_EQ(written.predicted().step_seconds(), 0.1);
  EXPECT_DOUBLE_EQ(written.measured().step_seconds(), 0.21);
}

TEST(RunFeedback, StepsThatReturn_AreToldToo) {
  RunFeedback feedback;
  v1::JobSpec spec = PredictedJob(100);
  spec.mutable_feedback()->set_replan("auto");
  feedback.Begin(spec, PlanOfTwo(), 0, {});
  EXPECT_THAT(Train(feedback, 1, 20, 200),
              ElementsAre(HasSubstr("a new split is looked for at the next cut")));
  EXPECT_THAT(Train(feedback, 1000, 20, 110),
              ElementsAre("steps take 0.11 s, near the 0.1 s that were predicted (+10 %) again"));
  EXPECT_FALSE(Written(feedback).drifts());
  EXPECT_EQ(Written(feedback).drifts_told(), 2);
}

TEST(RunFeedback, WithoutAPrediction_IsMeasuredAndNothingIsTold) {
  RunFeedback feedback;
  v1::JobSpec spec = PredictedJob(100);
  spec.clear_prediction();
  feedback.Begin(spec, PlanOfTwo(), 0, {});
  EXPECT_THAT(Train(feedback, 1, 50, 210), IsEmpty());
  EXPECT_THAT(feedback.OnReports(50, Report(0, 99'999, 5000)), IsEmpty());
  const v1::Feedback written = Written(feedback);
  EXPECT_FALSE(written.has_predicted());
  EXPECT_DOUBLE_EQ(written.measured().step_seconds(), 0.21);
  EXPECT_EQ(written.measured().workers(0).memory_bytes(), 99'999);
}

TEST(RunFeedback, StepsBeforeTheMethodBegins_DoNotCount) {
  RunFeedback feedback;
  v1::JobSpec spec = PredictedJob(100);
  spec.mutable_pipeline()->set_synchronous_steps(30);
  feedback.Begin(spec, PlanOfTwo(), 0, {});
  EXPECT_THAT(Train(feedback, 1, 30, 500), IsEmpty());
  EXPECT_FALSE(Written(feedback).measured().has_step_seconds());
}

TEST(RunFeedback, Reports_GiveMemoryAndWhatTrainingSends) {
  RunFeedback feedback;
  feedback.Begin(PredictedJob(100), PlanOfTwo(), /*first_step=*/10, {});
  EXPECT_THAT(feedback.OnReports(30, Report(0, 1100, 20 * 500 + 77, 77)), IsEmpty());
  EXPECT_THAT(feedback.OnReports(30, Report(1, 3000, 20 * 300)),
              ElementsAre("worker beta has taken 3000 bytes of memory at most, 2000 were predicted "
                          "(+50 %)"));
  EXPECT_THAT(feedback.OnReports(40, Report(1, 3000, 30 * 300)), IsEmpty()) << "told already";
  const v1::Feedback written = Written(feedback);
  EXPECT_TRUE(written.drifts());
  ASSERT_EQ(written.measured().workers_size(), 2);
  EXPECT_EQ(written.measured().workers(0).worker(), "alpha");
  EXPECT_EQ(written.measured().workers(0).memory_bytes(), 1100);
  EXPECT_DOUBLE_EQ(written.measured().workers(0).sent_bytes_per_step(), 500);
  EXPECT_DOUBLE_EQ(written.measured().workers(1).sent_bytes_per_step(), 300);
  EXPECT_DOUBLE_EQ(written.predicted().workers(1).sent_bytes_per_step(), 250);
  EXPECT_EQ(written.predicted().workers(1).memory_bytes(), 2000);
}

TEST(RunFeedback, ReportsOfNoStage_AreIgnored) {
  RunFeedback feedback;
  feedback.Begin(PredictedJob(100), PlanOfTwo(), 0, {});
  EXPECT_THAT(feedback.OnReports(30, Report(-1, 1, 1)), IsEmpty());
  EXPECT_THAT(feedback.OnReports(30, Report(2, 1, 1)), IsEmpty());
  EXPECT_FALSE(Written(feedback).measured().workers(0).has_memory_bytes());
}

TEST(RunFeedback, AnotherPlan_BeginsAgainAndKeepsTheCount) {
  RunFeedback feedback;
  feedback.Begin(PredictedJob(100), PlanOfTwo(), 0, {});
  Train(feedback, 1, 20, 210);
  v1::JobSpec spec = PredictedJob(100);
  spec.mutable_prediction()->set_step_seconds(0.2);
  feedback.Begin(spec, PlanOfTwo(), 20, {});
  EXPECT_FALSE(Written(feedback).drifts());
  EXPECT_EQ(Written(feedback).drifts_told(), 1);
  EXPECT_FALSE(Written(feedback).measured().has_step_seconds());
  EXPECT_THAT(Train(feedback, 21, 40, 210), IsEmpty());
  EXPECT_DOUBLE_EQ(Written(feedback).measured().step_seconds(), 0.21);
}

}  // namespace
}  // namespace penstock
