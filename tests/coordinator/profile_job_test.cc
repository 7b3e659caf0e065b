// A profile as a job of the coordinator, with simulated workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "job/profile/cluster_profile.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

v1::ProfileSpec OnWorkers(int workers) {
  v1::ProfileSpec profile = SmallProfile();
  profile.set_workers(workers);
  return profile;
}

v1::SubmitProfileRequest Request(const v1::ProfileSpec& profile) {
  v1::SubmitProfileRequest request;
  *request.mutable_spec() = SmallJob(4, 2);
  *request.mutable_profile() = profile;
  return request;
}

TEST(SubmitProfile, InvalidProfile_IsRefusedNamingTheKey) {
  Coordinator coordinator({});
  v1::ProfileSpec profile = SmallProfile();
  profile.clear_samples();
  EXPECT_THAT(coordinator.CheckProfile(Request(profile), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("profile.samples: has 0")));
  v1::SubmitProfileRequest request = Request(SmallProfile());
  request.mutable_spec()->mutable_training()->set_microbatches(3);
  EXPECT_THAT(coordinator.CheckProfile(request, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("training.microbatches")));
}

TEST(SubmitProfile, JobThatIsReplanned_IsProfiledLikeAnyOther) {
  Coordinator coordinator({});
  v1::SubmitProfileRequest request = Request(SmallProfile());
  request.mutable_spec()->mutable_checkpoint()->set_directory("/ckpt");
  request.mutable_spec()->mutable_checkpoint()->set_every_steps(5);
  request.mutable_spec()->mutable_feedback()->set_replan("auto");
  EXPECT_THAT(coordinator.CheckProfile(request, {}).status(), IsOk());
}

TEST(Profile, Succeeds_WithEveryPairOfLinksAndNoResultOfTraining) {
  SimulatedCluster cluster({.workers = 4, .devices = {"a", "b"}});
  const std::string job = cluster.SubmitProfile(SmallJob(4, 2), SmallProfile());
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(saved.summary().method(), "profile");
  EXPECT_EQ(saved.summary().step(), saved.summary().steps());
  EXPECT_FALSE(saved.has_result());
  EXPECT_THAT(CheckClusterProfile(saved.profile()), IsOk());
  EXPECT_THAT(saved.profile().devices(), SizeIs(2));
  EXPECT_THAT(saved.profile().links(), SizeIs(4 * 3));
  EXPECT_THAT(cluster.timings(), SizeIs(4));
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(Profile, Progress_IsPublishedAndGrows) {
  SimulatedCluster cluster({.workers = 2});
  const std::string job = cluster.SubmitProfile(SmallJob(4, 2), OnWorkers(2));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  int64_t done = -1;
  int reports = 0;
  std::set<std::string> workers;
  for (const v1::JobEvent& event : cluster.Events(job)) {
    if (!event.has_profile_progress()) continue;
    ++reports;
    EXPECT_GT(event.profile_progress().done(), done);
    done = event.profile_progress().done();
    EXPECT_EQ(event.profile_progress().total(), cluster.Summary(job).steps());
    workers.insert(event.profile_progress().worker());
  }
  EXPECT_THAT(workers, ElementsAre("w0", "w1"));
  EXPECT_GE(reports, 6);
}

TEST(Profile, SecondTime_TimesNoLayersUnlessFresh) {
  SimulatedCluster cluster({.workers = 2});
  for (const bool fresh : {false, false, true}) {
    v1::ProfileSpec profile = OnWorkers(2);
    profile.set_fresh(fresh);
    const std::string job = cluster.SubmitProfile(SmallJob(4, 2), profile);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_THAT(cluster.Saved(job).profile().links(), SizeIs(2));
  }
  EXPECT_THAT(cluster.timings(), ElementsAre("w0 times 5 of small-1", "w1 times 5 of small-1",
                                             "w0 times 5 of small-3", "w1 times 5 of small-3"));
  EXPECT_FALSE(cluster.Saved("small-1").profile().devices(0).cached());
  EXPECT_TRUE(cluster.Saved("small-2").profile().devices(0).cached());
  EXPECT_FALSE(cluster.Saved("small-3").profile().devices(0).cached());
}

TEST(Profile, SpoiledTimesInTheStore_AreMeasuredAgain) {
  SimulatedCluster cluster({.workers = 1});
  const std::string first = cluster.SubmitProfile(SmallJob(4, 2), OnWorkers(1));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  ASSERT_THAT(cluster.layer_times(), SizeIs(1));
  cluster.layer_times().begin()->second.mutable_model()->clear_shapes();
  const std::string second = cluster.SubmitProfile(SmallJob(4, 2), OnWorkers(1));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_THAT(cluster.timings(), SizeIs(2));
  EXPECT_THAT(CheckClusterProfile(cluster.Saved(second).profile()), IsOk());
}

TEST(Profile, WorkerLost_FailsNamingItAndTheNextJobRuns) {
  for (const int lost : {0, 1}) {
    SimulatedCluster cluster({.workers = 3});
    cluster.RunFor(10);
    const std::string profile = cluster.SubmitProfile(SmallJob(4, 2), OnWorkers(3));
    const std::string job = cluster.Submit(SmallJob(4, 2));
    cluster.At(150, [&] { cluster.Freeze(lost); });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    EXPECT_EQ(cluster.Summary(profile).state(), v1::JOB_STATE_FAILED);
    EXPECT_THAT(cluster.Summary(profile).error(),
                StartsWith(absl::StrCat("worker w", lost, ": was lost")));
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_THAT(cluster.violations(), IsEmpty());
  }
}

TEST(Profile, DeviceThatFails_IsTheOnlyErrorThereIs) {
  SimulatedCluster cluster({.workers = 3, .devices = {"a", "b"}});
  const std::string profile = cluster.SubmitProfile(SmallJob(4, 2), OnWorkers(3));
  cluster.At(250, [&] {
    cluster.FailRunIfTraining(1, "profiling h.0.mlp with 8 samples: no memory for it");
  });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(profile).error(),
            "worker w1: profiling h.0.mlp with 8 samples: no memory for it");
  EXPECT_THAT(cluster.StillTraining(), IsEmpty());
}

TEST(Profile, NonsenseFromAWorker_FailsNamingIt) {
  SimulatedCluster cluster({.workers = 1});
  const std::string job = cluster.SubmitProfile(SmallJob(4, 2), OnWorkers(1));
  cluster.RunFor(50);
  const JobRun* run = cluster.coordinator().FindRun(job);
  ASSERT_NE(run, nullptr);
  v1::ReportRunRequest report;
  report.set_worker("w0");
  report.set_incarnation(100);
  report.set_job_id(job);
  report.set_epoch(run->epoch());
  report.add_events()->mutable_step_done()->set_step(1);
  report.add_events()->mutable_run_done();
  ASSERT_THAT(cluster.coordinator().ReportRun(report, cluster.now()), IsOk());
  EXPECT_THAT(cluster.coordinator().CheckInvariants(), IsOk());
  EXPECT_EQ(cluster.Summary(job).error(), "worker w0: ended without the times of the layers");
}

TEST(Profile, CancelledAtEveryMoment_EndsAndFreesItsWorkers) {
  for (int64_t at_ms = 0; at_ms < 900; at_ms += 7) {
    SimulatedCluster cluster({.workers = 2, .delay_ms_min = 5, .delay_ms_max = 5});
    const std::string profile = cluster.SubmitProfile(SmallJob(4, 2), OnWorkers(2));
    cluster.At(at_ms, [&] {
      ASSERT_THAT(cluster.coordinator().CancelJob(profile, cluster.now()), IsOk());
      cluster.PerformEffects();
    });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << at_ms;
    const v1::JobSummary summary = cluster.Summary(profile);
    EXPECT_TRUE(summary.state() == v1::JOB_STATE_CANCELLED ||
                summary.state() == v1::JOB_STATE_SUCCEEDED)
        << at_ms << " ms: " << summary.DebugString();
    const std::string job = cluster.Submit(SmallJob(2, 2));
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << at_ms;
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << at_ms;
    EXPECT_THAT(cluster.violations(), IsEmpty()) << at_ms;
  }
}

TEST(Profile, JobBehindIt_WaitsAndRunsAfterIt) {
  SimulatedCluster cluster({.workers = 2});
  const std::string profile = cluster.SubmitProfile(SmallJob(4, 2), OnWorkers(2));
  const std::string job = cluster.Submit(SmallJob(4, 2));
  cluster.RunFor(200);
  EXPECT_EQ(cluster.Summary(profile).state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(cluster.Summary(job).reason(), HasSubstr("0 of 2 are free"));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(profile).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(Profile, MoreWorkersThanThereAre_Waits) {
  SimulatedCluster cluster({.workers = 2});
  const std::string profile = cluster.SubmitProfile(SmallJob(4, 2), OnWorkers(3));
  cluster.RunFor(5000);
  EXPECT_THAT(cluster.Summary(profile).reason(),
              AllOf(HasSubstr("needs 3"), HasSubstr("cluster has 2")));
}

// It writes no checkpoints, so it need not wait for a job that does.
TEST(Profile, CheckpointDirectoryOfTheJob_IsNotUsed) {
  SimulatedCluster cluster({.workers = 2});
  v1::JobSpec spec = SmallJob(40, 1);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  cluster.RunFor(10);
  const std::string training = cluster.Submit(spec);
  const std::string profile = cluster.SubmitProfile(spec, OnWorkers(1));
  cluster.RunFor(500);
  EXPECT_EQ(cluster.Summary(training).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(cluster.Summary(profile).state(), v1::JOB_STATE_RUNNING);
}

TEST(Profile, WaitingAtARestartOfTheCoordinator_WaitsAgain) {
  SimulatedCluster before({.workers = 0});
  const std::string profile = before.SubmitProfile(SmallJob(4, 2), OnWorkers(2));
  Coordinator after({});
  after.Restore(before.Store(), {});
  const JobRun* run = after.FindRun(profile);
  ASSERT_NE(run, nullptr);
  EXPECT_TRUE(run->Record().has_profile_spec());
  EXPECT_TRUE(run->queued());
}

}  // namespace
}  // namespace penstock
