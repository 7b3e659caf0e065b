// Jobs that leave their split or their method to the coordinator, with simulated workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "job/open_job.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

v1::JobSpec MeasuredJob(int64_t steps, int32_t stages) {
  v1::JobSpec spec = SmallJob(steps, stages);
  spec.mutable_planning()->set_split("measured");
  return spec;
}

// As it is written: without defaults, which depend on the method.
v1::JobSpec JobWithOpenMethod(int64_t steps, double race_seconds) {
  v1::JobSpec spec = SmallJob(steps, 0);
  spec.clear_pipeline();
  spec.clear_feedback();
  spec.mutable_training()->clear_staleness();
  spec.mutable_pipeline()->set_method("auto");
  spec.mutable_planning()->Clear();
  spec.mutable_planning()->set_race_seconds(race_seconds);
  return spec;
}

// The same of a model that asynchronous methods can have on several stages.
v1::JobSpec UntiedJobWithOpenMethod(int64_t steps, double race_seconds) {
  v1::JobSpec spec = JobWithOpenMethod(steps, race_seconds);
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  return spec;
}

// How many layers each worker has.
std::map<std::string, int> LayersOf(const v1::GetJobResponse& job) {
  std::map<std::string, int> layers;
  for (const v1::StageAssignment& stage : job.plan().stages()) {
    layers[stage.worker()] += stage.layers();
  }
  return layers;
}

void SortBySteps(JobPlan& plan) {
  std::stable_sort(plan.candidates.begin(), plan.candidates.end(),
                   [](const JudgedCandidate& a, const JudgedCandidate& b) {
                     return std::pair(!a.runs(), a.step_s) < std::pair(!b.runs(), b.step_s);
                   });
  plan.fastest = 0;
}

// As if a step of paci on two stages took `factor` times as long as the shortest of those that drain.
void SetStepOfPaci(double factor, JobPlan& plan) {
  double shortest_s = std::numeric_limits<double>::infinity();
  for (const JudgedCandidate& judged : plan.candidates) {
    if (judged.runs() && judged.pattern.synchronous)
      shortest_s = std::min(shortest_s, judged.step_s);
  }
  for (JudgedCandidate& judged : plan.candidates) {
    if (judged.runs()) judged.step_s = std::max(judged.step_s, shortest_s);
    if (judged.runs() && judged.candidate.method == "paci" && judged.candidate.stages == 2) {
      judged.step_s = factor * shortest_s;
    }
  }
  SortBySteps(plan);
}

const v1::PlannedCandidate& CandidateOf(const std::string& method,
                                        const v1::JobPlanning& planning) {
  for (const v1::PlannedCandidate& candidate : planning.candidates()) {
    if (candidate.method() == method) return candidate;
  }
  ADD_FAILURE() << "no candidate of " << method;
  return planning.candidates(0);
}

bool WasMeasured(const SimulatedCluster& cluster, const std::string& job) {
  for (const std::string& timing : cluster.timings()) {
    if (absl::EndsWith(timing, absl::StrCat(" of ", job, ".profile"))) return true;
  }
  return false;
}

TEST(JobPlanning, UnequalWorkers_GetLayersBySpeed) {
  // Worker i takes 1 + i ms for every pass of a layer.
  SimulatedCluster cluster({.workers = 3, .devices = {"a", "b", "c"}});
  const std::string job = cluster.Submit(MeasuredJob(4, 3));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(WasMeasured(cluster, job));
  std::map<std::string, int> layers = LayersOf(saved);
  EXPECT_EQ(layers["w0"] + layers["w1"] + layers["w2"], 7);
  EXPECT_GT(layers["w0"], layers["w1"]);
  EXPECT_GE(layers["w1"], layers["w2"]);
  ASSERT_THAT(saved.planning().candidates(), Not(IsEmpty()));
  EXPECT_GT(saved.planning().measuring_seconds(), 0);
  EXPECT_EQ(saved.planning().candidates(0).workers_size(), 3);
  EXPECT_GT(saved.spec().prediction().step_seconds(), 0);
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(JobPlanning, PermutedWorkers_PermuteTheSplit) {
  SimulatedCluster other({.workers = 3, .devices = {"c", "b", "a"}});
  const std::string job = other.Submit(MeasuredJob(4, 3));
  ASSERT_TRUE(other.RunUntilOver(kLimitMs));
  // Times go by the worker that measures, so w0 is the fastest whatever its device is called.
  std::map<std::string, int> layers = LayersOf(other.Saved(job));
  EXPECT_GT(layers["w0"], layers["w1"]);
  EXPECT_GE(layers["w1"], layers["w2"]);
}

TEST(JobPlanning, SecondJobOfTheKind_MeasuresNothing) {
  SimulatedCluster cluster({.workers = 3, .devices = {"a", "b", "c"}});
  const std::string first = cluster.Submit(MeasuredJob(4, 3));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const std::string second = cluster.Submit(MeasuredJob(4, 3));
  ASSERT_TRUE(cluster.RunUntilOver(2 * kLimitMs));
  EXPECT_TRUE(WasMeasured(cluster, first));
  EXPECT_FALSE(WasMeasured(cluster, second));
  EXPECT_THAT(cluster.transcript(), Not(HasSubstr(second + ".profile")));
  EXPECT_EQ(cluster.Saved(second).planning().measuring_seconds(), 0);
  EXPECT_EQ(LayersOf(cluster.Saved(second)), LayersOf(cluster.Saved(first)));
  EXPECT_THAT(cluster.Logs(second), Contains(HasSubstr("known from an earlier job")));
}

TEST(JobPlanning, WorkersThatJoined_HaveTheirLinksMeasured) {
  SimulatedCluster cluster({.workers = 2});
  cluster.Submit(MeasuredJob(4, 2));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  cluster.Kill(1);
  cluster.Restart(1);  // another process, perhaps behind another network
  const std::string second = cluster.Submit(MeasuredJob(4, 2));
  ASSERT_TRUE(cluster.RunUntilOver(2 * kLimitMs));
  EXPECT_FALSE(WasMeasured(cluster, second));  // its device is known
  EXPECT_THAT(cluster.Logs(second), Contains(HasSubstr("measures the links of 2 workers")));
}

TEST(JobPlanning, WhatTheJobSays_IsKept) {
  SimulatedCluster cluster({.workers = 3, .devices = {"a", "b", "c"}});
  v1::JobSpec split = MeasuredJob(4, 2);
  split.mutable_pipeline()->add_stage_layers(6);
  split.mutable_pipeline()->add_stage_layers(1);
  v1::JobSpec named = MeasuredJob(4, 3);
  for (const char* name : {"w2", "w0", "w1"}) named.mutable_pipeline()->add_worker_names(name);
  const std::string with_split = cluster.Submit(split);
  const std::string with_names = cluster.Submit(named);
  const std::string estimated = cluster.Submit(SmallJob(4, 3));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_FALSE(WasMeasured(cluster, with_split));
  EXPECT_FALSE(WasMeasured(cluster, estimated));
  EXPECT_EQ(cluster.Saved(with_split).plan().stages(0).layers(), 6);
  const v1::Plan& plan = cluster.Saved(with_names).plan();
  ASSERT_EQ(plan.stages_size(), 3);
  EXPECT_EQ(plan.stages(0).worker(), "w2");
  EXPECT_EQ(plan.stages(1).worker(), "w0");
  EXPECT_GT(plan.stages(1).layers(), plan.stages(0).layers());
}

TEST(JobPlanning, StagesThatAreOpen_AreAsManyAsAreFastest) {
  // The second worker takes twice as long.
  SimulatedCluster cluster({.workers = 2, .devices = {"a", "b"}});
  const std::string job = cluster.Submit(MeasuredJob(4, 0));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(saved.spec().pipeline().stages(), saved.spec().pipeline().stage_layers_size());
  EXPECT_EQ(saved.result().stages(), saved.spec().pipeline().stages());
}

TEST(JobPlanning, StagesThatAreOpen_DelayCountsBesideTheStep) {
  SimulatedCluster cluster({.workers = 3, .step_ms = 10});
  cluster.change_plan = [](JobPlan& plan) {  // each stage saves a thousandth of a step
    for (JudgedCandidate& judged : plan.candidates) {
      if (judged.runs()) judged.step_s = 1 - 0.001 * judged.candidate.stages;
    }
    SortBySteps(plan);
  };
  v1::JobSpec spec = MeasuredJob(4, 0);
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_pipeline()->set_method("pipedream");
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(100 * kLimitMs));
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED) << saved.summary().error();
  EXPECT_EQ(saved.spec().pipeline().stages(), 1) << saved.planning().reason();
  EXPECT_THAT(saved.planning().reason(), HasSubstr("the expected time to the same loss: "));
}

TEST(JobPlanning, OpenMethod_IsChosenByARaceOnTheWorkers) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 10});
  const std::string job = cluster.Submit(JobWithOpenMethod(200, 1e5));
  ASSERT_TRUE(cluster.RunUntilOver(100 * kLimitMs));
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED) << saved.summary().error();
  EXPECT_EQ(saved.result().steps(), 200);
  const v1::JobPlanning& planning = saved.planning();
  ASSERT_GT(planning.candidates_size(), 5);
  EXPECT_EQ(planning.candidates(0).method(), saved.summary().method());
  EXPECT_TRUE(planning.candidates(0).has_race());
  EXPECT_THAT(planning.reason(), HasSubstr("a race: loss"));
  EXPECT_GT(planning.racing_seconds(), 0);
  // Simulated losses fall with steps alone, so the winner is one that trained most steps.
  for (const v1::PlannedCandidate& candidate : planning.candidates()) {
    EXPECT_LE(candidate.race().steps(), planning.candidates(0).race().steps());
  }
  EXPECT_THAT(cluster.Logs(job), Contains(HasSubstr("race: round 2, 1 of ")));
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(JobPlanning, RaceWithoutTime_EndsInTheFirstRound) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 10});
  const std::string job = cluster.Submit(JobWithOpenMethod(200, 0.5));
  ASSERT_TRUE(cluster.RunUntilOver(100 * kLimitMs));
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED) << saved.summary().error();
  EXPECT_FALSE(saved.planning().in_time());
  EXPECT_LT(saved.planning().racing_seconds(), 2);
}

TEST(JobPlanning, WithoutARace_AShorterStepAloneDoesNotWin) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 10});
  cluster.change_plan = [](JobPlan& plan) { SetStepOfPaci(0.95, plan); };
  const std::string job = cluster.Submit(UntiedJobWithOpenMethod(200, 0));
  ASSERT_TRUE(cluster.RunUntilOver(100 * kLimitMs));
  const v1::JobPlanning& planning = cluster.Saved(job).planning();
  ASSERT_GT(planning.candidates_size(), 5);
  const v1::PlannedCandidate& chosen = planning.candidates(0);
  const v1::PlannedCandidate& paci = CandidateOf("paci", planning);
  EXPECT_TRUE(chosen.update_pattern().synchronous()) << chosen.name();
  EXPECT_EQ(chosen.steps_factor().expected(), 1);
  EXPECT_LT(paci.step_seconds(), chosen.step_seconds());
  EXPECT_GT(paci.steps_factor().expected(), 1 / 0.95);
  EXPECT_GT(paci.steps_factor().high(), paci.steps_factor().low());
  EXPECT_THAT(
      planning.reason(),
      AllOf(HasSubstr("the expected time to the same loss: "), HasSubstr("against paci, "),
            HasSubstr("no job of this kind has run"), HasSubstr("planning.race_seconds is 0")));
}

TEST(JobPlanning, WithoutARace_JobsThatLostNothingLetTheShorterStepWin) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 10});
  cluster.change_plan = [](JobPlan& plan) { SetStepOfPaci(0.95, plan); };
  // Simulated losses fall with steps alone, so that no delay costs any.
  for (const char* method : {"1f1b", "1f1b", "paci", "paci", "paci"}) {
    v1::JobSpec spec = SmallJob(200, 2);
    spec.mutable_model()->mutable_gpt()->set_tied_head(false);
    spec.mutable_pipeline()->set_method(method);
    cluster.Submit(spec);
  }
  ASSERT_TRUE(cluster.RunUntilOver(100 * kLimitMs));
  const std::string job = cluster.Submit(UntiedJobWithOpenMethod(200, 0));
  ASSERT_TRUE(cluster.RunUntilOver(100 * kLimitMs));
  const v1::JobPlanning& planning = cluster.Saved(job).planning();
  EXPECT_EQ(planning.candidates(0).method(), "paci") << planning.reason();
  EXPECT_LT(planning.candidates(0).steps_factor().expected(), 1 / 0.95);
  EXPECT_THAT(planning.reason(), HasSubstr("3 runs of such jobs"));
}

TEST(JobPlanning, RaceCutShortInItsFirstRound_LeavesTheChoiceToExpectedTimes) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 10});
  cluster.change_plan = [](JobPlan& plan) { SetStepOfPaci(0.95, plan); };
  const std::string job = cluster.Submit(UntiedJobWithOpenMethod(200, 0.5));
  ASSERT_TRUE(cluster.RunUntilOver(100 * kLimitMs));
  const v1::JobPlanning& planning = cluster.Saved(job).planning();
  EXPECT_TRUE(planning.candidates(0).has_steps_factor());
  EXPECT_THAT(planning.reason(), AllOf(HasSubstr("the expected time to the same loss: "),
                                       HasSubstr("over before its first round")));
}

TEST(JobPlanning, WhatRacesAndJobsTell_OutlivesTheProcess) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 10});
  const std::string job = cluster.Submit(UntiedJobWithOpenMethod(200, 1e5));
  ASSERT_TRUE(cluster.RunUntilOver(100 * kLimitMs));
  const std::vector<ObservedRun> runs = cluster.coordinator().learned_steps().Runs();
  EXPECT_GT(runs.size(), 5u);
  EXPECT_EQ(runs.back().curve.steps(), 200);  // the job itself
  for (const ObservedRun& run : runs)
    EXPECT_EQ(run.setup, SetupOf(UntiedJobWithOpenMethod(200, 0)));
  Coordinator next({});
  next.Restore(cluster.Store(), cluster.now());
  EXPECT_EQ(next.learned_steps().Runs(), runs);
}

TEST(JobPlanning, OpenMethod_TakesNothingElseOfThePipeline) {
  Coordinator coordinator({});
  v1::SubmitJobRequest request;
  *request.mutable_spec() = JobWithOpenMethod(20, 10);
  EXPECT_THAT(coordinator.CheckSubmission(request, {}).status(), IsOk());
  request.mutable_spec()->mutable_pipeline()->set_recompute("all");
  EXPECT_THAT(coordinator.CheckSubmission(request, {}),
              StatusIs(kInvalid, HasSubstr("pipeline.recompute: belongs to a method")));
  *request.mutable_spec() = JobWithOpenMethod(20, -1);
  EXPECT_THAT(coordinator.CheckSubmission(request, {}),
              StatusIs(kInvalid, HasSubstr("planning.race_seconds: is -1")));
  *request.mutable_spec() = MeasuredJob(20, 2);
  request.mutable_spec()->mutable_planning()->set_race_seconds(5);
  EXPECT_THAT(coordinator.CheckSubmission(request, {}),
              StatusIs(kInvalid, HasSubstr("this one names its method")));
}

TEST(JobPlanning, CancelledAtAnyMoment_EndsAndNobodyTrains) {
  for (int64_t at = 1; at < 4000; at += 37) {
    SimulatedCluster cluster({.workers = 2, .step_ms = 5});
    const std::string job =
        cluster.Submit(at % 2 == 0 ? MeasuredJob(50, 2) : JobWithOpenMethod(400, 20));
    cluster.At(at, [&] {
      ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()).status(), IsOk());
      cluster.PerformEffects();
    });
    ASSERT_TRUE(cluster.RunUntilOver(100 * kLimitMs)) << at;
    cluster.RunFor(60'000);
    EXPECT_THAT(cluster.StillTraining(), IsEmpty()) << at;
    EXPECT_THAT(cluster.violations(), IsEmpty()) << at;
  }
}

TEST(JobPlanning, WorkerLostAtAnyMoment_TheJobWaitsAndIsPlannedAgain) {
  for (int64_t at = 5; at < 1500; at += 31) {
    SimulatedCluster cluster({.workers = 2, .step_ms = 20});
    const std::string job = cluster.Submit(MeasuredJob(4, 2));
    bool measured = false;
    cluster.At(at, [&] {
      measured = absl::StrContains(cluster.transcript(), "w1: RunDone");
      cluster.Kill(1);
    });
    cluster.At(at + 60'000, [&] { cluster.Restart(1); });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << at;
    const v1::JobSummary summary = cluster.Summary(job);
    if (!measured) {  // else it is prepared, or trains, and has failed
      EXPECT_EQ(summary.state(), v1::JOB_STATE_SUCCEEDED) << at << ": " << summary.error();
    }
    EXPECT_THAT(cluster.violations(), IsEmpty()) << at;
  }
}

TEST(JobPlanning, LeavingWorker_SendsTheJobBackToTheQueue) {
  SimulatedCluster cluster({.workers = 3, .step_ms = 300});
  const std::string job = cluster.Submit(MeasuredJob(4, 2));
  cluster.At(200, [&] { cluster.Leave(0); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(cluster.alive(0));
  EXPECT_THAT(LayersOf(cluster.Saved(job)), Not(Contains(testing::Key("w0"))));
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(JobPlanning, UnmeasurableWorker_HasTheJobSplitByEstimate) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 20});
  const std::string job = cluster.Submit(MeasuredJob(4, 2));
  cluster.At(60, [&] { cluster.FailRunIfTraining(0, "has a device that cannot be timed"); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(cluster.Logs(job),
              Contains(AllOf(HasSubstr("split by estimated cost"), HasSubstr("cannot be timed"))));
  EXPECT_FALSE(cluster.Saved(job).has_planning());
}

TEST(JobPlanning, KnownTimesDoNotCome_AreMeasured) {
  SimulatedCluster cluster({.workers = 2});
  cluster.layer_times_hang = true;
  const std::string job = cluster.Submit(MeasuredJob(4, 2));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(WasMeasured(cluster, job));
  EXPECT_TRUE(cluster.Saved(job).has_planning());
}

TEST(JobPlanning, SearchDoesNotEnd_AJobWithAMethodIsSplitByEstimateAndAnotherFails) {
  SimulatedCluster cluster({.workers = 2});
  cluster.search_hangs = true;
  const std::string split = cluster.Submit(MeasuredJob(4, 2));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(split).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(cluster.Logs(split), Contains(AllOf(HasSubstr("split by estimated cost"),
                                                  HasSubstr("the search for a plan did not end"))));
  const std::string open = cluster.Submit(JobWithOpenMethod(4, /*race_seconds=*/0));
  ASSERT_TRUE(cluster.RunUntilOver(2 * kLimitMs));
  EXPECT_EQ(cluster.Summary(open).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(cluster.Summary(open).error(), HasSubstr("the search for a plan did not end within"));
}

// Its executor thread hangs, and it answers calls. A split by estimate would run on the same workers.
TEST(JobPlanning, WorkerDoesNotStopMeasuring_GetsNoWorkAndTheJobWaits) {
  SimulatedClusterOptions options{.workers = 2};
  options.limits.run.stall_timeout_ms = 60'000;
  SimulatedCluster cluster(options);
  cluster.RunFor(10);
  const std::string job = cluster.Submit(MeasuredJob(4, 2));
  cluster.RunFor(150);
  ASSERT_THAT(cluster.Summary(job).reason(), IsEmpty()) << "it measures";
  cluster.FreezeExecutor(1);
  cluster.RunFor(110'000);  // stalls, is not stopped, and rests
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(cluster.Summary(job).reason(),
              AllOf(HasSubstr("needs 2, the cluster has 1"),
                    HasSubstr("worker w1 does not stop its run of job small-1.profile")));
  const v1::ListWorkersResponse workers = cluster.coordinator().ListWorkers(cluster.now());
  EXPECT_THAT(workers.workers(1).unusable_reason(), HasSubstr("restart the worker"));
  EXPECT_THAT(cluster.Logs(job), Not(Contains(HasSubstr("split by estimated cost"))));
  cluster.ThawExecutor(1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(cluster.Saved(job).has_planning());
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

// The job goes back to the queue by itself, so nobody is told to submit it again until it has failed.
TEST(JobPlanning, WorkerDoesNotPrepareToMeasure_IsNamedAndTheJobIsPlannedThreeTimes) {
  SimulatedClusterOptions options{.workers = 2};
  options.limits.run.prepare_timeout_ms = 20'000;
  SimulatedCluster cluster(options);
  cluster.RunFor(10);
  const std::string job = cluster.Submit(MeasuredJob(4, 2));
  for (int planning = 1; planning <= 3; ++planning) {
    SCOPED_TRACE(planning);
    cluster.FreezeExecutor(1);
    cluster.RunFor(31'000);  // it has rested for 10 s before
    cluster.ThawExecutor(1);
    cluster.RunFor(2'000);  // until it has stopped
    if (planning == 3) break;
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_QUEUED);
    EXPECT_EQ(cluster.Summary(job).reason(), "worker w1 did not prepare within 20 s");
  }
  EXPECT_EQ(cluster.Summary(job).error(),
            "cannot be planned, after 3 attempts: worker w1 did not prepare within 20 s; restart "
            "what hangs or is gone, and submit the job again");
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(JobPlanning, Resumed_KeepsTheSplitOfTheCheckpoint) {
  SimulatedCluster cluster({.workers = 2});
  cluster.found_start =
      FoundStart{.checkpoint = "/ck/step-2", .step = 2, .method = "1f1b", .stage_layers = {6, 1}};
  v1::JobSpec spec = MeasuredJob(4, 2);
  spec.mutable_checkpoint()->set_directory("/ck");
  spec.mutable_checkpoint()->set_every_steps(2);
  spec.mutable_checkpoint()->set_resume("latest");
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_FALSE(WasMeasured(cluster, job));
  EXPECT_EQ(cluster.Saved(job).plan().stages(0).layers(), 6);
  ASSERT_THAT(cluster.commits(), Not(IsEmpty()));
  EXPECT_THAT(cluster.commits().back().stage_layers, ElementsAre(6, 1));
}

v1::JobSpec SearchedJob(int64_t steps, int32_t stages) {
  v1::JobSpec spec = MeasuredJob(steps, stages);
  spec.mutable_pipeline()->set_method("searched");
  return spec;
}

TEST(JobPlanning, SearchedOrder_IsFoundForTheMeasuredTimesAndPartOfTheRecord) {
  SimulatedCluster cluster({.workers = 3, .devices = {"a", "b", "c"}});
  const std::string job = cluster.Submit(SearchedJob(4, 3));
  const std::string plain = cluster.Submit(MeasuredJob(4, 3));
  ASSERT_TRUE(cluster.RunUntilOver(2 * kLimitMs));
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED) << saved.summary().error();
  EXPECT_TRUE(WasMeasured(cluster, job));
  EXPECT_EQ(saved.summary().method(), "searched");
  EXPECT_EQ(saved.plan().method(), "searched");
  EXPECT_EQ(saved.spec().pipeline().stage_layers_size(), 3);
  EXPECT_FALSE(OrderIsOpen(saved.spec()));
  EXPECT_FALSE(saved.spec().pipeline().schedule().empty());
  ASSERT_THAT(saved.planning().candidates(), Not(IsEmpty()));
  EXPECT_EQ(saved.planning().candidates(0).method(), "searched");
  EXPECT_LT(saved.spec().prediction().step_seconds(),
            cluster.Saved(plain).spec().prediction().step_seconds());
  EXPECT_THAT(cluster.violations(), IsEmpty());
  // What is recorded can be submitted: the same order, and nothing is measured.
  v1::JobSpec repeated = saved.spec();
  repeated.clear_prediction();
  const std::string second = cluster.Submit(repeated);
  ASSERT_TRUE(cluster.RunUntilOver(3 * kLimitMs));
  EXPECT_FALSE(WasMeasured(cluster, second));
  EXPECT_EQ(cluster.Saved(second).plan().schedule_digest(), saved.plan().schedule_digest());
}

TEST(JobPlanning, SearchedOrder_WithoutMeasuredTimes_IsFoundByEstimate) {
  SimulatedCluster cluster({.workers = 3});
  v1::JobSpec estimated = SearchedJob(4, 3);
  estimated.mutable_planning()->set_split("estimated");
  v1::JobSpec split = SearchedJob(4, 2);
  split.mutable_pipeline()->add_stage_layers(6);
  split.mutable_pipeline()->add_stage_layers(1);
  v1::JobSpec alone = SearchedJob(4, 1);
  for (const v1::JobSpec& spec : {estimated, split, alone}) {
    const std::string job = cluster.Submit(spec);
    ASSERT_TRUE(cluster.RunUntilOver(4 * kLimitMs));
    const v1::GetJobResponse& saved = cluster.Saved(job);
    EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED) << saved.summary().error();
    EXPECT_FALSE(WasMeasured(cluster, job));
    EXPECT_FALSE(saved.spec().pipeline().schedule().empty());
    EXPECT_THAT(cluster.Logs(job), Contains(HasSubstr("searched for estimated times")));
  }
}

TEST(JobPlanning, SearchedOrder_Resumed_IsThatOfTheCheckpoint) {
  std::string schedule;
  for (const bool resumes : {false, true}) {
    SimulatedCluster cluster({.workers = 2});
    v1::JobSpec spec = SearchedJob(4, 2);
    spec.mutable_checkpoint()->set_directory("/ck");
    spec.mutable_checkpoint()->set_every_steps(2);
    if (resumes) {
      spec.mutable_checkpoint()->set_resume("latest");
      cluster.found_start = FoundStart{.checkpoint = "/ck/step-2",
                                       .step = 2,
                                       .method = "searched",
                                       .stage_layers = {6, 1},
                                       .schedule = schedule};
    }
    const std::string job = cluster.Submit(spec);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    EXPECT_EQ(WasMeasured(cluster, job), !resumes);
    ASSERT_THAT(cluster.commits(), Not(IsEmpty()));
    const v1::PipelineSpec& pipeline = cluster.Saved(job).spec().pipeline();
    EXPECT_FALSE(pipeline.schedule().empty());
    EXPECT_EQ(cluster.commits().back().schedule, pipeline.schedule());
    if (resumes) {
      EXPECT_EQ(pipeline.schedule(), schedule);
      EXPECT_THAT(pipeline.stage_layers(), ElementsAre(6, 1));
    }
    schedule = pipeline.schedule();
  }
}

TEST(JobPlanning, SearchedOrder_TakesWhatItCanOrder) {
  Coordinator coordinator({});
  v1::SubmitJobRequest request;
  *request.mutable_spec() = SearchedJob(20, 2);
  EXPECT_THAT(coordinator.CheckSubmission(request, {}).status(), IsOk());
  request.mutable_spec()->mutable_pipeline()->set_stages_per_worker(2);
  EXPECT_THAT(coordinator.CheckSubmission(request, {}).status(), IsOk());
  request.mutable_spec()->mutable_pipeline()->add_replicas(2);
  EXPECT_THAT(coordinator.CheckSubmission(request, {}).status(), IsOk());
  request.mutable_spec()->mutable_pipeline()->set_order("recorded");
  EXPECT_THAT(coordinator.CheckSubmission(request, {}),
              StatusIs(kInvalid, HasSubstr("pipeline.order: cannot be recorded with searched")));
}

// The checkpoint's order has two replicas of the first stage, or both stages on one worker; the job names neither.
TEST(JobPlanning, SearchedOrderOfAnotherPlacement_IsNotKept) {
  for (const char* schedule :
       {"# penstock schedule 1 range=0+2 stages=0,1,2 replicas=2,1 group=gradient:sum:0,1\n"
        "0F0,0B0\n1F1,1B1\n2F0,2B0,2F1,2B1\n",
        "# penstock schedule 1 range=0+2 stages=0,0\n0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1\n"}) {
    const bool is_replicated = absl::StrContains(schedule, "replicas");
    const int32_t workers = is_replicated ? 3 : 1;
    SimulatedCluster cluster({.workers = workers});
    v1::JobSpec spec = SearchedJob(4, workers);
    spec.mutable_pipeline()->clear_stages();
    spec.mutable_training()->set_microbatches(2);
    spec.mutable_training()->set_batch(4);
    spec.mutable_checkpoint()->set_directory("/ck");
    spec.mutable_checkpoint()->set_every_steps(2);
    spec.mutable_checkpoint()->set_resume("latest");
    cluster.found_start = FoundStart{.checkpoint = "/ck/step-2",
                                     .step = 2,
                                     .method = "searched",
                                     .stage_layers = {6, 1},
                                     .schedule = schedule};
    const std::string job = cluster.Submit(spec);
    ASSERT_TRUE(cluster.RunUntilOver(4 * kLimitMs));
    const v1::GetJobResponse& saved = cluster.Saved(job);
    EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED) << saved.summary().error();
    EXPECT_NE(saved.spec().pipeline().schedule(), schedule);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob resolved, ResolveJob(saved.spec()));
    EXPECT_THAT(resolved.stage_replicas, IsEmpty());
    EXPECT_EQ(resolved.stages_per_worker, 1);
  }
}

// Runs the job on `workers` workers, with a measured or an estimated split. Returns it as it was recorded.
ResolvedJob RunSearched(v1::JobSpec spec, int32_t workers, bool measured) {
  SimulatedCluster cluster({.workers = workers});
  if (!measured) spec.mutable_planning()->set_split("estimated");
  const std::string job = cluster.Submit(spec);
  EXPECT_TRUE(cluster.RunUntilOver(4 * kLimitMs));
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED) << saved.summary().error();
  EXPECT_EQ(WasMeasured(cluster, job), measured);
  EXPECT_THAT(cluster.violations(), IsEmpty());
  return ResolveJob(saved.spec()).value();
}

TEST(JobPlanning, SearchedOrderOfSeveralStagesOnAWorker_IsThatOfTheRun) {
  v1::JobSpec spec = SearchedJob(4, 4);
  spec.mutable_pipeline()->set_stages_per_worker(2);
  for (const bool measured : {true, false}) {
    const ResolvedJob resolved = RunSearched(spec, /*workers=*/2, measured);
    ASSERT_NE(resolved.listed, nullptr);
    EXPECT_EQ(resolved.WorkersOf(4), 2);
    EXPECT_EQ(resolved.listed->topology.stages(), 4);
  }
}

// Measured or not, the order is for the replicas that the job names.
TEST(JobPlanning, SearchedOrderOfReplicas_IsThatOfTheRun) {
  v1::JobSpec spec = SearchedJob(4, 2);
  spec.mutable_training()->set_microbatches(6);
  spec.mutable_training()->set_batch(12);
  for (const bool measured : {true, false}) {
    for (const std::vector<int32_t>& replicas : {std::vector<int32_t>{2}, {1, 3}}) {
      spec.mutable_pipeline()->mutable_replicas()->Assign(replicas.begin(), replicas.end());
      const ResolvedJob resolved = RunSearched(spec, /*workers=*/4, measured);
      ASSERT_NE(resolved.listed, nullptr);
      EXPECT_EQ(resolved.WorkersOf(2), 4);
      EXPECT_EQ(resolved.stage_replicas.back(), replicas.back());
    }
  }
}

TEST(JobPlanning, RestartOfTheCoordinatorWhileItPlans_LosesNothing) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 50});
  const std::string job = cluster.Submit(MeasuredJob(4, 2));
  cluster.RunFor(150);
  ASSERT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_PREPARING);
  Coordinator next({});
  next.Restore(cluster.Store(), cluster.now());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSummary summary, next.FindSummary(job));
  EXPECT_EQ(summary.state(), v1::JOB_STATE_QUEUED);
}

TEST(JobPlanning, StoppingCoordinator_PutsTheJobBack) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 50});
  const std::string job = cluster.Submit(MeasuredJob(4, 2));
  cluster.RunFor(150);
  cluster.coordinator().Drain(cluster.now());
  cluster.PerformEffects();
  cluster.RunFor(5000);
  EXPECT_TRUE(cluster.coordinator().Drained());
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(cluster.StillTraining(), IsEmpty());
}

}  // namespace
}  // namespace penstock
