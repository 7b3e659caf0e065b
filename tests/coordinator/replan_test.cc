// New splits from measured times, and what a job does with them.
#include "planner/job/replan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "job/prediction.h"
#include "planner/job/assign.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kNoBetter = absl::StatusCode::kFailedPrecondition;

// 7 layers on two workers, 3 and 4 of them; every pass of a layer takes 1 ms. 4 microbatches.
v1::JobSpec PlannedJob() {
  v1::JobSpec spec = SmallJob(100, 2);
  spec.mutable_pipeline()->add_stage_layers(3);
  spec.mutable_pipeline()->add_stage_layers(4);
  PredictOnEqualWorkers(spec, 0.057);
  return spec;
}

struct MeasuredRun {
  v1::JobSpec spec = PlannedJob();
  ResolvedJob job;
  v1::Plan plan;
  google::protobuf::RepeatedPtrField<v1::StageReport> reports;

  // On workers that take this many ms for each pass of a layer.
  explicit MeasuredRun(std::vector<double> pass_ms, v1::JobSpec planned = PlannedJob())
      : spec(std::move(planned)), job(*ResolveJob(spec)) {
    std::vector<WorkerOffer> workers;
    for (size_t i = 0; i < pass_ms.size(); ++i) {
      workers.push_back({.name = absl::StrCat("w", i)});
    }
    plan = *MakePlan(spec, job, workers, 0, {});
    for (const v1::StageAssignment& stage : plan.stages()) {
      v1::StageReport& report = *reports.Add();
      report.set_stage(stage.stage());
      report.set_peak_memory_bytes(1'000'000);
      for (const char* action : {"F", "I", "W"}) {
        v1::ActionTime& time = *report.add_actions();
        time.set_action(action);
        time.set_median_seconds(1e-3 * stage.layers() * pass_ms[stage.worker_index()]);
      }
      v1::ActionTime& step = *report.add_actions();  // is not looked at
      step.set_action("UPDATE");
      step.set_median_seconds(17);
    }
  }

  absl::StatusOr<NewSplit> Anew(const std::vector<int64_t>& memory_bytes = {0, 0}) const {
    return PlanAnew(spec, job, plan, reports, memory_bytes);
  }
};

TEST(PlanAnew, WorkerOfHalfTheSpeed_GetsFewerLayers) {
  const MeasuredRun run({1.0, 2.0});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const NewSplit split, run.Anew());
  // 5 layers of 1 ms against 2 of 2 ms.
  EXPECT_THAT(split.stage_layers, ElementsAre(5, 2));
  // 1f1b with the last stage the slower: in for 3 ms, 4 microbatches of 3 passes of 8 ms, back for 6 ms.
  EXPECT_NEAR(split.step_s_before, 0.003 + 4 * 0.024 + 0.006, 1e-9);
  EXPECT_LT(split.prediction.step_seconds(), 0.95 * split.step_s_before);
  EXPECT_THAT(split.prediction.times().speeds(), ElementsAre(1.0, 0.5));
  EXPECT_EQ(split.prediction.sent_bytes_size(), 2);
}

TEST(PlanAnew, Prediction_IsOfTheJobWithTheNewSplit) {
  const MeasuredRun run({1.0, 2.0});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const NewSplit split, run.Anew());
  v1::JobSpec changed = run.spec;
  changed.mutable_pipeline()->mutable_stage_layers()->Assign(split.stage_layers.begin(),
                                                             split.stage_layers.end());
  *changed.mutable_prediction() = split.prediction;
  EXPECT_FALSE(DropOtherPrediction(changed));
  EXPECT_THAT(ResolveJob(changed).status(), IsOk());
}

TEST(PlanAnew, ThereIsNoBetterSplit_SaysSo) {
  // As planned.
  EXPECT_THAT(MeasuredRun({1.0, 1.0}).Anew(),
              StatusIs(kNoBetter, HasSubstr("split best as they are")));
  // All as slow as each other.
  EXPECT_THAT(MeasuredRun({7.0, 7.0}).Anew(),
              StatusIs(kNoBetter, HasSubstr("split best as they are")));
}

TEST(PlanAnew, GainTooSmall_IsNotWorthADrain) {
  v1::JobSpec spec = SmallJob(100, 2);
  for (const int layers : {4, 3}) spec.mutable_pipeline()->add_stage_layers(layers);
  PredictOnEqualWorkers(spec, 0.054);
  // The first stage takes a little longer than the other would with its 4 layers, but comes earlier.
  EXPECT_THAT(MeasuredRun({1.001, 1.0}, spec).Anew(),
              StatusIs(kNoBetter, AllOf(HasSubstr("layers split 3-4 instead of 4-3"),
                                        HasSubstr("which is not 5 % less"))));
}

TEST(TimesSince, EarlierReport_LeavesTheMeanSinceThen) {
  MeasuredRun run({1.0, 1.0});
  const auto set = [&](int64_t count, double seconds) {
    for (v1::StageReport& report : run.reports) {
      for (v1::ActionTime& action : *report.mutable_actions()) {
        action.set_count(count);
        action.set_seconds(report.stage() == 0 ? 0.003 * static_cast<double>(count) : seconds);
      }
    }
  };
  set(100, 0.4);
  const auto before = run.reports;
  // The second worker took 8 ms a pass since; its median is still that of the many before.
  set(110, 0.48);
  run.reports = TimesSince(before, run.reports);
  EXPECT_NEAR(run.reports[0].actions(0).median_seconds(), 0.003, 1e-12);
  EXPECT_NEAR(run.reports[1].actions(0).median_seconds(), 0.008, 1e-12);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const NewSplit split, run.Anew());
  EXPECT_THAT(split.stage_layers, ElementsAre(5, 2));
  // Nothing was done since.
  EXPECT_EQ(TimesSince(run.reports, run.reports)[1].actions(0).median_seconds(),
            run.reports[1].actions(0).median_seconds());
}

TEST(PlanAnew, NothingToPlanWith_SaysWhat) {
  MeasuredRun run({1.0, 2.0});
  run.reports.RemoveLast();
  EXPECT_THAT(run.Anew(), StatusIs(kNoBetter, HasSubstr("worker 1 of the pipeline told no times")));
  run = MeasuredRun({1.0, 2.0});
  run.spec.mutable_prediction()->clear_times();
  EXPECT_THAT(run.Anew(), StatusIs(kNoBetter, HasSubstr("prediction.times")));
}

TEST(PlanAnew, LayersThatMightNotFit_AreNotMoved) {
  const MeasuredRun run({1.0, 2.0});
  EXPECT_THAT(run.Anew({1'100'000, 0}),
              StatusIs(kNoBetter, AllOf(HasSubstr("worker w0 might need"), HasSubstr("has 1.1"))));
  EXPECT_THAT(run.Anew({100'000'000, 1}), IsOk()) << "the other worker gets fewer";
}

TEST(PlanAnew, WorkersWithTwoStages_AreAsFastAsBothTogether) {
  v1::JobSpec spec = SmallJob(100, 4);
  spec.mutable_pipeline()->set_method("zb-v");
  for (const int layers : {2, 2, 2, 1}) spec.mutable_pipeline()->add_stage_layers(layers);
  PredictOnEqualWorkers(spec, 0.1);
  const MeasuredRun run({1.0, 4.0}, spec);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const NewSplit split, run.Anew());
  // Stages 0 and 3 are on the fast worker.
  EXPECT_GT(split.stage_layers[0] + split.stage_layers[3],
            split.stage_layers[1] + split.stage_layers[2]);
  EXPECT_THAT(split.prediction.times().speeds(), ElementsAre(1.0, 0.25));
}

// ------------------------------------------------------------------------------- jobs that go on

v1::JobSpec ReplannedJob(int64_t steps) {
  v1::JobSpec spec = PlannedJob();
  spec.mutable_training()->set_steps(steps);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(5);
  spec.mutable_feedback()->set_drift_steps(3);
  spec.mutable_feedback()->set_replan("auto");
  return spec;
}

TEST(Replan, SlowWorker_LosesLayersAndTheJobGoesOn) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 2}});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(ReplannedJob(30));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(cluster.violations(), IsEmpty());
  EXPECT_THAT(cluster.LeasedDirectories(), IsEmpty());
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_THAT(saved.spec().pipeline().stage_layers(), ElementsAre(5, 2));
  EXPECT_EQ(saved.plan().stages(0).layers(), 5);
  EXPECT_EQ(saved.result().feedback().replans(), 1);
  EXPECT_EQ(saved.result().steps(), 30);
  EXPECT_EQ(saved.result().tokens(), 30 * 128) << "of both runs";
  EXPECT_EQ(saved.result().losses_size(), 30);
  EXPECT_EQ(saved.result().weights_sha256().size(), 64u);
  ASSERT_EQ(saved.result().extra_cuts_size(), 1) << "where it drained";
  const int64_t drained = saved.result().extra_cuts(0);
  const auto of_drain =
      std::find_if(cluster.commits().begin(), cluster.commits().end(),
                   [&](const Manifest& manifest) { return manifest.step == drained; });
  ASSERT_NE(of_drain, cluster.commits().end());
  EXPECT_EQ(of_drain->updates, drained);
  EXPECT_EQ(cluster.commits().back().updates, 30);
  EXPECT_EQ(cluster.commits().back().extra_cuts, std::vector<int64_t>{drained});
  EXPECT_THAT(
      cluster.Logs(job),
      ::testing::IsSupersetOf({HasSubstr("a new split is looked for at the next cut"),
                               HasSubstr("goes on with its layers split 5-2, from a checkpoint")}));
}

TEST(Replan, Never_OnlySaysSo) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 2}});
  cluster.RunFor(10);
  v1::JobSpec spec = ReplannedJob(30);
  spec.mutable_feedback()->set_replan("never");
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const v1::Feedback& feedback = cluster.Saved(job).result().feedback();
  EXPECT_TRUE(feedback.drifts());
  EXPECT_EQ(feedback.replans(), 0);
  EXPECT_THAT(cluster.Saved(job).spec().pipeline().stage_layers(), ElementsAre(3, 4));
  EXPECT_THAT(cluster.Logs(job), ElementsAre(HasSubstr("makes a new plan")));
}

TEST(Replan, AsPredicted_NothingHappens) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 1}});
  cluster.RunFor(10);
  v1::JobSpec spec = ReplannedJob(30);
  spec.mutable_prediction()->set_step_seconds(0.048);  // 4 microbatches of 3 passes of 4 layers
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_THAT(cluster.Logs(job), IsEmpty());
  EXPECT_EQ(cluster.Saved(job).result().feedback().drifts_told(), 0);
}

TEST(Replan, RefusedSplit_IsLookedForAgainAndToldOnce) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 1}});
  cluster.RunFor(10);
  v1::JobSpec spec = ReplannedJob(60);
  spec.mutable_prediction()->set_step_seconds(0.02);  // no split is as fast
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Saved(job).result().feedback().replans(), 0);
  const std::vector<std::string> logs = cluster.Logs(job);
  EXPECT_EQ(std::count_if(logs.begin(), logs.end(),
                          [](const std::string& log) {
                            return log.find("split best as they are") != std::string::npos;
                          }),
            1);
}

TEST(Replan, WithoutAPrediction_SaysThatThereIsNothingToHoldAgainst) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 2}});
  cluster.RunFor(10);
  v1::JobSpec spec = ReplannedJob(30);
  spec.clear_prediction();
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(cluster.Logs(job), ElementsAre(HasSubstr("has no prediction")));
}

TEST(Replan, NearTheEnd_IsLeftAlone) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 2}});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(ReplannedJob(8));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().feedback().replans(), 0);
  EXPECT_THAT(cluster.Logs(job), ::testing::Contains(HasSubstr("no new split for the last")));
}

// It would drain for it again and again, and lose steps each time.
TEST(Replan, CheckpointCannotBeSaved_TheJobGoesOnWithTheSplitThatItHas) {
  SimulatedCluster cluster({.workers = 2, .commit_failure_percent = 100, .pass_ms = {1, 2}});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(ReplannedJob(200));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_THAT(saved.spec().pipeline().stage_layers(), ElementsAre(3, 4));
  EXPECT_EQ(saved.result().steps(), 200);
  ASSERT_EQ(saved.result().attempts_size(), 2);
  EXPECT_EQ(saved.result().attempts(0).cause(), v1::ATTEMPT_CAUSE_NOT_SAVED);
  EXPECT_THAT(cluster.Summary(job).error(), HasSubstr("training is complete, but"));
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(Replan, WorkersFailOfTheNewSplit_TheJobGoesBackToTheOneBefore) {
  SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 2}});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(ReplannedJob(100));
  ASSERT_TRUE(
      cluster.RunUntil([&] { return cluster.Saved(job).spec().pipeline().stage_layers(0) == 5; }));
  cluster.cannot_prepare[0] = absl::ResourceExhaustedError("too little memory for 5 layers");
  ASSERT_TRUE(
      cluster.RunUntil([&] { return cluster.Saved(job).spec().pipeline().stage_layers(0) == 3; }));
  cluster.cannot_prepare.clear();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(cluster.Saved(job).spec().pipeline().stage_layers(), ElementsAre(3, 4));
  EXPECT_EQ(cluster.Saved(job).result().losses_size(), 100);
  EXPECT_THAT(cluster.Logs(job),
              ::testing::Contains(HasSubstr("goes back to the split of before")));
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(Replan, CheckpointCannotBeSaved_FailsAJobThatDoesNotRecover) {
  SimulatedCluster cluster({.workers = 2, .commit_failure_percent = 100, .pass_ms = {1, 2}});
  cluster.RunFor(10);
  v1::JobSpec spec = ReplannedJob(30);
  spec.mutable_recovery()->set_mode("off");
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(cluster.Summary(job).error(),
              AllOf(HasSubstr("drained for a new split, but the checkpoint of step"),
                    HasSubstr("disk full"), Not(HasSubstr("--resume"))))
      << "there is no checkpoint to go on from";
  cluster.RunFor(1000);
  EXPECT_THAT(cluster.StillTraining(), IsEmpty());
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(Replan, CancelledAtAnyMoment_EndsAndFreesItsWorkers) {
  for (int64_t at_ms = 200; at_ms < 2200; at_ms += 11) {
    SimulatedCluster cluster(
        {.workers = 2, .delay_ms_min = 5, .delay_ms_max = 5, .pass_ms = {1, 2}});
    const std::string job = cluster.Submit(ReplannedJob(60));
    cluster.At(at_ms, [&] {
      ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
      cluster.PerformEffects();
    });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << at_ms;
    cluster.RunFor(1000);
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_CANCELLED) << at_ms;
    EXPECT_THAT(cluster.StillTraining(), IsEmpty()) << at_ms;
    EXPECT_THAT(cluster.violations(), IsEmpty()) << at_ms;
    EXPECT_THAT(cluster.LeasedDirectories(), IsEmpty()) << at_ms;
  }
}

TEST(Replan, WorkerKilledAtAnyMoment_FailsTheJobThatDoesNotRecover) {
  for (int64_t at_ms = 300; at_ms < 2200; at_ms += 37) {
    SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 2}});
    cluster.RunFor(10);
    v1::JobSpec spec = ReplannedJob(60);
    spec.mutable_recovery()->set_mode("off");
    const std::string job = cluster.Submit(spec);
    cluster.At(at_ms, [&] { cluster.Kill(1); });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << at_ms;
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED) << at_ms;
    EXPECT_THAT(cluster.Summary(job).error(), HasSubstr("w1")) << at_ms;
    EXPECT_THAT(cluster.violations(), IsEmpty()) << at_ms;
  }
}

// Before, during and after the drain, and while the job is prepared with the new split.
TEST(Replan, WorkerKilledAtAnyMomentAndBack_TheJobSucceeds) {
  for (int64_t at_ms = 300; at_ms < 2200; at_ms += 37) {
    SimulatedCluster cluster({.workers = 2, .pass_ms = {1, 2}});
    cluster.RunFor(10);
    const std::string job = cluster.Submit(ReplannedJob(60));
    cluster.At(at_ms, [&] { cluster.Kill(1); });
    cluster.At(at_ms + 700, [&] { cluster.Restart(1); });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << at_ms << cluster.transcript();
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED)
        << at_ms << cluster.transcript();
    EXPECT_EQ(cluster.Saved(job).result().losses_size(), 60) << at_ms;
    EXPECT_THAT(cluster.violations(), IsEmpty()) << at_ms;
    EXPECT_THAT(cluster.LeasedDirectories(), IsEmpty()) << at_ms;
  }
}

}  // namespace
}  // namespace penstock
