// Workers that leave in good order, and coordinators that are stopped or killed: jobs with a checkpoint directory go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/ends.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::HeartbeatRequest Leaving(const std::string& worker, uint64_t incarnation) {
  v1::HeartbeatRequest request;
  request.set_name(worker);
  request.set_incarnation(incarnation);
  request.set_leaving(true);
  return request;
}

TEST(Leave, WorkerWithoutARun_GoesAtOnceAndIsForgotten) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  Coordinator& coordinator = cluster.coordinator();
  EXPECT_THAT(coordinator.Heartbeat(Leaving("w0", 100), cluster.now()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("worker w0 has left")));
  const v1::ListWorkersResponse workers = coordinator.ListWorkers(cluster.now());
  ASSERT_EQ(workers.workers_size(), 1) << "it is not counted as lost";
  EXPECT_EQ(workers.workers(0).name(), "w1");
}

TEST(Leave, WorkerOfARun_StaysUntilTheJobIsSavedAndTheJobGoesOnWithAnother) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(30, 2));
  cluster.At(1000, [&] { cluster.Leave(1); });
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_DRAINING));
  EXPECT_TRUE(cluster.coordinator().ListWorkers(cluster.now()).workers(1).leaving());
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_FALSE(cluster.alive(1));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(cluster.violations(), IsEmpty());
  EXPECT_THAT(cluster.LeasedDirectories(), IsEmpty());
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_THAT(WorkersOf(saved), ElementsAre("w0", "w2"));
  EXPECT_EQ(saved.result().recoveries(), 1);
  EXPECT_EQ(saved.result().steps(), 30);
  EXPECT_EQ(saved.result().tokens(), 30 * 128);
  EXPECT_EQ(saved.result().losses_size(), 30) << "no step is lost, and none is done twice";
  ASSERT_EQ(saved.result().extra_cuts_size(), 1) << "where it drained";
  const int64_t cut = saved.result().extra_cuts(0);
  EXPECT_THAT(cluster.Logs(job), ElementsAre(absl::StrCat("drains after step ", cut),
                                             HasSubstr(absl::StrCat("continues after step ", cut)),
                                             absl::StrCat("goes on after step ", cut)));
}

// Weights then differ by rounding from those of a run on one kind of device, which somebody who compares digests wants to know.
TEST(Leave, OthersComputeOtherwise_IsLoggedAndInTheManifest) {
  SimulatedCluster cluster({.workers = 3});
  cluster.arithmetics = {{0, "a cpu"}, {1, "a cpu"}, {2, "a gpu"}};
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(30, 2));
  cluster.At(1000, [&] { cluster.Leave(1); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  ASSERT_GE(cluster.commits().size(), 2u);
  EXPECT_THAT(cluster.commits().front().arithmetics, ElementsAre("a cpu"));
  EXPECT_THAT(cluster.commits().back().arithmetics, ElementsAre("a cpu", "a gpu"));
  EXPECT_THAT(cluster.Logs(job),
              ElementsAre(HasSubstr("drains"), HasSubstr("continues"),
                          AllOf(HasSubstr("devices of 2 kinds"), HasSubstr("a cpu; a gpu")),
                          AllOf(HasSubstr("computes on a cpu; a gpu"),
                                HasSubstr("its checkpoint comes from a cpu:")),
                          HasSubstr("goes on")));
}

// A coordinator that takes a run over knows what it computes on.
TEST(Leave, CoordinatorRestartsBefore_TheManifestStillHasTheArithmetic) {
  SimulatedCluster cluster({.workers = 1});
  cluster.arithmetics = {{0, "a cpu"}};
  cluster.RunFor(10);
  cluster.Submit(SavedJob(30, 1));
  cluster.At(1000, [&] { cluster.RestartCoordinator(); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  ASSERT_FALSE(cluster.commits().empty());
  EXPECT_THAT(cluster.commits().back().arithmetics, ElementsAre("a cpu"));
}

// A busy machine may not have begun when its worker is asked to leave.
TEST(Leave, BeforeTheFirstStepIsBegun_IsNoFailure) {
  for (const bool recovers : {false, true}) {
    for (int64_t at_ms = 0; at_ms < 1000; at_ms += 23) {
      SCOPED_TRACE(at_ms);
      SimulatedCluster cluster(
          {.workers = 3, .delay_ms_min = 5, .delay_ms_max = 5, .begin_ms = 700});
      v1::JobSpec spec = SavedJob(8, 2);
      if (!recovers) spec.mutable_recovery()->set_mode("off");
      const std::string job = cluster.Submit(spec);
      cluster.At(at_ms, [&] { cluster.Leave(1); });
      ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
      EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
      for (const v1::Attempt& attempt : cluster.Saved(job).result().attempts()) {
        EXPECT_THAT(attempt.cause(), AnyOf(v1::ATTEMPT_CAUSE_LEFT, v1::ATTEMPT_CAUSE_UNSPECIFIED))
            << cluster.transcript();
      }
      EXPECT_EQ(cluster.Saved(job).result().losses_size(), 8);
      EXPECT_THAT(cluster.violations(), IsEmpty());
    }
  }
}

TEST(Leave, AtEveryMoment_TheJobSucceeds) {
  for (int64_t at_ms = 0; at_ms < 1200; at_ms += 7) {
    SimulatedCluster cluster({.workers = 2, .delay_ms_min = 5, .delay_ms_max = 5});
    const std::string job = cluster.Submit(SavedJob(8, 2));
    cluster.At(at_ms, [&] { cluster.Leave(1); });
    cluster.At(at_ms + 20'000, [&] { cluster.Restart(1); });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << at_ms << cluster.transcript();
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED)
        << at_ms << cluster.transcript();
    EXPECT_THAT(cluster.violations(), IsEmpty()) << at_ms;
  }
}

TEST(Leave, CancelledWhileItDrains_EndsTheJob) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(1000, 2));
  cluster.At(1000, [&] { cluster.Leave(1); });
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_DRAINING));
  ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
  cluster.PerformEffects();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(cluster.Summary(job).reason(), "cancelled by the user");
}

// Otherwise it would have to be run from its first step again, which is for the user to say.
TEST(Leave, JobWithoutACheckpointDirectory_RunsToItsEndFirst) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(50, 1));
  cluster.At(1000, [&] { cluster.Leave(0); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(cluster.Logs(job), ElementsAre(AllOf(HasSubstr("worker w0 is leaving"),
                                                   HasSubstr("checkpoint.directory"))));
  EXPECT_EQ(cluster.Saved(job).result().recoveries(), 0);
  cluster.RunFor(2000);
  EXPECT_FALSE(cluster.alive(0));
}

TEST(Leave, SaveFails_FailsTheJobThatDoesNotRecoverSayingSo) {
  SimulatedCluster cluster({.workers = 2, .commit_failure_percent = 100});
  cluster.RunFor(10);
  v1::JobSpec spec = SavedJob(1000, 2);
  spec.mutable_recovery()->set_mode("off");
  const std::string job = cluster.Submit(spec);
  cluster.At(1000, [&] { cluster.Leave(1); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(cluster.Summary(job).error(),
              AllOf(HasSubstr("drained because worker w1 is leaving"), HasSubstr("disk full")));
}

// The steps after the checkpoint before the drain's are done again, as after any failure.
TEST(Leave, SaveOfTheDrainFails_TheJobGoesOnFromTheCheckpointBefore) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  v1::JobSpec spec = SavedJob(100, 2);
  spec.mutable_checkpoint()->set_every_steps(5);
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntil([&] { return !cluster.commits().empty(); }));
  cluster.RunFor(100);
  cluster.disk_full = true;
  cluster.Leave(1);
  cluster.RunFor(2000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  cluster.disk_full = false;
  cluster.Restart(1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  const v1::JobResult& result = cluster.Saved(job).result();
  ASSERT_EQ(result.attempts_size(), 2);
  EXPECT_EQ(result.attempts(0).cause(), v1::ATTEMPT_CAUSE_NOT_SAVED);
  EXPECT_THAT(result.attempts(0).message(), AllOf(HasSubstr("drained because worker w1 is leaving"),
                                                  HasSubstr("No space left on device")));
  EXPECT_EQ(result.attempts(1).first_step(), 5);
  EXPECT_EQ(result.losses_size(), 100);
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

// A rolling restart: the same job goes on as often as workers leave, on as many as it had.
TEST(Leave, OneAfterTheOther_TheJobKeepsItsWorkers) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(4000);  // settled
  const std::string job = cluster.Submit(SavedJob(400, 0));
  for (int worker = 0; worker < 3; ++worker) {
    const int64_t at_ms = 6000 + 10'000 * worker;
    cluster.At(at_ms, [&cluster, worker] { cluster.Leave(worker); });
    cluster.At(at_ms + 5000, [&cluster, worker] { cluster.Restart(worker); });
  }
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().recoveries(), 3);
  EXPECT_EQ(cluster.Saved(job).plan().stages_size(), 3);
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(Leave, NeverComesBack_TheJobGoesOnWithFewerAfterAWhile) {
  SimulatedClusterOptions options{.workers = 3};
  options.limits.run.return_timeout_ms = 30'000;
  SimulatedCluster cluster(options);
  cluster.RunFor(4000);
  const std::string job = cluster.Submit(SavedJob(100, 0));
  cluster.At(6000, [&] { cluster.Leave(2); });
  cluster.RunFor(20'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(cluster.Summary(job).reason(), HasSubstr("needs 3, the cluster has 2"));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).plan().stages_size(), 2);
}

TEST(Leave, NeverComesBack_JobWithANumberOfStagesGoesOnWithFewerOnceItHasWaited) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  v1::JobSpec spec = SavedJob(100, 3);
  spec.mutable_recovery()->set_wait_seconds(40);
  const std::string job = cluster.Submit(std::move(spec));
  cluster.At(6000, [&] { cluster.Leave(2); });
  cluster.RunFor(30'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_QUEUED);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).plan().stages_size(), 2);
  EXPECT_EQ(cluster.Saved(job).result().steps(), 100);
}

// The time at which it would take fewer passes while another job, which recovers, comes first.
TEST(Leave, ItsTurnComesLate_TheJobGoesOnWithFewerThen) {
  SimulatedCluster cluster({.workers = 4});
  cluster.RunFor(10);
  v1::JobSpec spec = SavedJob(300, 2);
  spec.mutable_recovery()->set_wait_seconds(8);
  spec.mutable_checkpoint()->set_directory("/first");
  const std::string first = cluster.Submit(spec);
  spec.mutable_checkpoint()->set_directory("/second");
  const std::string second = cluster.Submit(spec);
  cluster.At(2000, [&] { cluster.Leave(3); });
  cluster.At(7000, [&] {
    cluster.FreezeExecutor(0);
    cluster.Kill(1);
  });
  cluster.At(20'000, [&] {
    cluster.ThawExecutor(0);
    cluster.Restart(1);
  });
  cluster.RunFor(15'000);
  EXPECT_EQ(cluster.Summary(second).reason(), absl::StrCat("waits behind job ", first));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(first).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Summary(second).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(second).plan().stages_size(), 1);
}

// The one that has come back dies before the job trains again.
TEST(Leave, DiesWhileTheStartIsSought_TheJobStillGoesOnWithFewerOnceItHasWaited) {
  SimulatedCluster cluster({.workers = 3, .delay_ms_min = 300, .delay_ms_max = 300});
  cluster.RunFor(1000);
  v1::JobSpec spec = SavedJob(100, 3);
  spec.mutable_recovery()->set_wait_seconds(20);
  const std::string job = cluster.Submit(std::move(spec));
  cluster.At(8000, [&] { cluster.Leave(2); });
  cluster.At(14'000, [&] { cluster.Restart(2); });
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_QUEUED));
  ASSERT_TRUE(cluster.RunUntil([&] {
    return cluster.Summary(job).reason().find("for where to start") != std::string::npos;
  }));
  cluster.Kill(2);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
  EXPECT_EQ(cluster.Saved(job).plan().stages_size(), 2);
}

// With this method, another number of stages would be another training.
TEST(Leave, NeverComesBack_JobThatNeedsItsStagesWaitsOn) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  v1::JobSpec spec = SavedJob(100, 3);
  spec.mutable_pipeline()->set_method("pipedream");
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_recovery()->set_wait_seconds(40);
  const std::string job = cluster.Submit(std::move(spec));
  cluster.At(6000, [&] { cluster.Leave(2); });
  cluster.At(400'000, [&] { cluster.Restart(2); });
  cluster.RunFor(300'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(cluster.Summary(job).reason(), HasSubstr("needs 3, the cluster has 2"));
  ASSERT_TRUE(cluster.RunUntilOver(1'000'000));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(Membership, LostWorker_IsForgottenAfterAWhile) {
  SimulatedClusterOptions options{.workers = 2};
  options.limits.membership.remember_lost_ms = 60'000;
  SimulatedCluster cluster(options);
  cluster.RunFor(10);
  cluster.Kill(1);
  cluster.RunFor(10'000);
  EXPECT_EQ(cluster.coordinator().ListWorkers(cluster.now()).workers_size(), 2);
  cluster.RunFor(60'000);
  EXPECT_EQ(cluster.coordinator().ListWorkers(cluster.now()).workers_size(), 1);
}

// ------------------------------------------------------------------------------ the coordinator

TEST(Drain, JobWithACheckpointDirectory_GoesBackToTheQueueAndOnInTheNextProcess) {
  SimulatedCluster before({.workers = 1});
  before.RunFor(10);
  const std::string job = before.Submit(SavedJob(30, 1));
  before.RunFor(1000);
  before.coordinator().Drain(before.now());
  before.PerformEffects();
  before.RunFor(3000);
  EXPECT_TRUE(before.coordinator().Drained());
  EXPECT_EQ(before.Summary(job).state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(before.Summary(job).reason(), HasSubstr("the coordinator was stopped"));

  const int64_t step = before.Summary(job).step();
  ASSERT_GT(step, 0);
  Coordinator after({});
  after.Restore(before.Store(), before.now());
  const JobRun* run = after.FindRun(job);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->spec().checkpoint().resume(), "latest");
  EXPECT_EQ(run->summary().step(), step);
  EXPECT_EQ(run->Record().result().losses_size(), step) << "what was known stays known";
}

TEST(Restore, JobUnderWayWithACheckpointDirectory_WaitsAgain) {
  SimulatedCluster before({.workers = 1});
  before.RunFor(10);
  v1::JobSpec spec = SavedJob(1000, 1);
  spec.mutable_checkpoint()->set_every_steps(5);
  const std::string job = before.Submit(spec);
  before.RunFor(2000);
  ASSERT_EQ(before.Summary(job).state(), v1::JOB_STATE_RUNNING);
  before.ForgetRuns();
  Coordinator after({});
  after.Restore(before.Store(), before.now());
  EXPECT_EQ(after.FindSummary(job)->state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(after.FindSummary(job)->reason(), HasSubstr("the coordinator was restarted"));
  EXPECT_EQ(after.FindRun(job)->spec().checkpoint().resume(), "latest");
}

// Until it has saved one itself, the checkpoint it was told to begin with counts.
TEST(Restore, JobThatBeganWithAnothersCheckpoint_BeginsThereUntilItHasOneOfItsOwn) {
  for (const bool has_own : {false, true}) {
    SimulatedCluster before({.workers = 1});
    before.found_start = FoundStart{.checkpoint = "/other/step-3", .step = 3, .updates = 3};
    before.RunFor(10);
    v1::JobSpec spec = SavedJob(1000, 1);
    spec.mutable_checkpoint()->set_resume("/other/step-3");
    if (has_own) spec.mutable_checkpoint()->set_every_steps(5);
    const std::string job = before.Submit(spec);
    before.RunFor(2000);
    before.ForgetRuns();
    Coordinator after({});
    after.Restore(before.Store(), before.now());
    EXPECT_EQ(after.FindRun(job)->spec().checkpoint().resume(),
              has_own ? "latest" : "/other/step-3");
  }
}

// The next save may be hours away, and the coordinator may be killed before.
TEST(Restore, Recovery_IsSavedWithTheStateThatFollows) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(1000, 2));
  cluster.At(1000, [&] { cluster.Leave(1); });
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_DRAINING));
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RUNNING));
  const v1::GetJobResponse& saved = cluster.Saved(job);
  ASSERT_EQ(saved.summary().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(saved.result().recoveries(), 1);
}

TEST(Restore, CountersOfTheResult_GoOn) {
  SimulatedCluster before({.workers = 1});
  before.RunFor(10);
  v1::JobSpec spec = SavedJob(40, 1);
  spec.mutable_checkpoint()->set_every_steps(5);
  const std::string job = before.Submit(spec);
  before.RunFor(2000);
  std::vector<StoredJob> stored = before.Store();
  ASSERT_EQ(stored.size(), 1u);
  stored[0].last_sequence = 0;  // the other cluster has no events of it
  v1::JobResult& result = *stored[0].record.mutable_result();
  ASSERT_GT(result.steps(), 0);
  result.set_recoveries(3);
  result.set_wall_seconds(100);
  result.mutable_feedback()->set_replans(2);
  result.mutable_feedback()->set_drifts_told(4);
  const int64_t started_ms = stored[0].record.summary().started_unix_ms();
  ASSERT_GT(started_ms, 0);

  SimulatedCluster after({.workers = 1});
  after.found_start = FoundStart{.checkpoint = "/ckpt/step-5", .step = 5, .updates = 5};
  after.coordinator().Restore(stored, after.now());
  after.PerformEffects();
  after.RunFor(20'000);
  ASSERT_EQ(after.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  const v1::GetJobResponse& saved = after.Saved(job);
  EXPECT_EQ(saved.result().recoveries(), 4);
  EXPECT_EQ(saved.result().feedback().replans(), 2);
  EXPECT_EQ(saved.result().feedback().drifts_told(), 4);
  EXPECT_GT(saved.result().wall_seconds(), 103) << "35 steps of 0.1 s are left";
  EXPECT_LT(saved.result().wall_seconds(), 105);
  EXPECT_EQ(saved.summary().started_unix_ms(), started_ms);
}

TEST(Restore, CancelledJobThatDrained_EndsCancelledFromItsLastCheckpoint) {
  for (const char* directory : {"/ckpt", ""}) {
    SimulatedCluster before({.workers = 1});
    before.RunFor(10);
    v1::JobSpec spec = SmallJob(1000, 1);
    spec.mutable_checkpoint()->set_directory(directory);
    spec.mutable_checkpoint()->set_every_steps(*directory == 0 ? 0 : 4);
    const std::string job = before.Submit(spec);
    before.RunFor(1000);
    ASSERT_THAT(before.coordinator().CancelJob(job, before.now()), IsOk());
    before.PerformEffects();
    ASSERT_EQ(before.Summary(job).state(), v1::JOB_STATE_DRAINING);
    EXPECT_EQ(before.Saved(job).cancel_reason(), "cancelled by the user");
    Coordinator after({});
    after.Restore(before.Store(), before.now());
    EXPECT_EQ(after.FindSummary(job)->state(), v1::JOB_STATE_CANCELLED);
    EXPECT_GT(after.FindSummary(job)->ended_unix_ms(), 0);
    EXPECT_EQ(after.FindSummary(job)->reason(),
              absl::StrCat(
                  "cancelled by the user; the coordinator was restarted before the job had ended, ",
                  *directory == 0 ? "so nothing of it is saved"
                                  : "so its steps after /ckpt/step-8 are lost"));
    v1::GetJobResponse kept;
    for (const CoordinatorEffect& effect : after.TakeEffects()) {
      if (const auto* save = std::get_if<SaveJob>(&effect)) kept = save->record;
    }
    EXPECT_EQ(kept.summary().state(), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(kept.result().checkpoint(), *directory == 0 ? "" : "/ckpt/step-8");
  }
}

// There is no step that could be lost.
TEST(Restore, CancelledJobThatHasNotTrained_EndsCancelledAndNothingIsLost) {
  SimulatedCluster before({.workers = 1});
  before.RunFor(10);
  const std::string training = before.Submit(SavedJob(1000, 1));
  before.RunFor(500);
  StoredJob stored = before.Store().front();
  ASSERT_EQ(stored.record.summary().state(), v1::JOB_STATE_RUNNING);
  stored.record.set_cancel_reason("cancelled by the user");
  StoredJob profile = stored;
  profile.record.mutable_profile_spec();
  StoredJob preparing = stored;
  preparing.record.mutable_summary()->set_state(v1::JOB_STATE_PREPARING);
  StoredJob queued = stored;
  queued.record.mutable_summary()->set_state(v1::JOB_STATE_QUEUED);
  for (const StoredJob& job : {profile, preparing, queued}) {
    Coordinator after({});
    after.Restore({job}, before.now());
    EXPECT_EQ(after.FindSummary(training)->state(), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(after.FindSummary(training)->reason(), "cancelled by the user");
  }
}

TEST(Restore, JobThatDrainedToReturn_WaitsAgain) {
  SimulatedCluster before({.workers = 2});
  before.RunFor(10);
  const std::string job = before.Submit(SavedJob(1000, 2));
  before.At(1000, [&] { before.Leave(1); });
  ASSERT_TRUE(before.RunUntilState(job, v1::JOB_STATE_DRAINING));
  std::vector<StoredJob> store = before.Store();
  Coordinator after({});
  after.Restore(store, before.now());
  EXPECT_EQ(after.FindSummary(job)->state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(after.FindRun(job)->spec().checkpoint().resume(), "latest");
  // An older build said neither which epoch an attempt had nor whether a drain was a cancellation.
  store[0].record.clear_epoch();
  Coordinator of_older_build({});
  of_older_build.Restore(store, before.now());
  EXPECT_EQ(of_older_build.FindSummary(job)->state(), v1::JOB_STATE_FAILED);
}

// The answer to the cancellation was given, while the workers were being started.
TEST(Restore, CancelledWhileItsWorkersWereStarted_EndsCancelled) {
  SimulatedCluster before({.workers = 2, .delay_ms_min = 5, .delay_ms_max = 5});
  const std::string job = before.Submit(SavedJob(1000, 2));
  ASSERT_TRUE(before.RunUntil([&] { return !before.starts().empty(); }));
  ASSERT_EQ(before.Summary(job).state(), v1::JOB_STATE_PREPARING);
  ASSERT_THAT(before.coordinator().CancelJob(job, before.now()), IsOk());
  before.PerformEffects();
  ASSERT_EQ(before.Summary(job).state(), v1::JOB_STATE_PREPARING);
  Coordinator after({});
  after.Restore(before.Store(), before.now());
  EXPECT_EQ(after.FindSummary(job)->state(), v1::JOB_STATE_CANCELLED);
}

// The first half of a cancellation is kept, and the coordinator dies before the second.
TEST(Restore, CancellationThatWasKept_EndsTheJob) {
  for (const bool runs : {false, true}) {
    SimulatedCluster before({.workers = runs ? 1 : 0});
    before.RunFor(10);
    const std::string job = before.Submit(SavedJob(1000, 1));
    before.RunFor(1000);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::optional<SaveJob> cancelled,
                                  before.coordinator().CheckCancel(job));
    ASSERT_TRUE(cancelled.has_value());
    EXPECT_EQ(before.Summary(job).state(), runs ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_QUEUED)
        << "nothing is done yet";
    EXPECT_THAT(before.coordinator().TakeEffects(), IsEmpty());
    std::vector<StoredJob> stored = before.Store();
    stored[0].record = cancelled->record;
    Coordinator after({});
    after.Restore(stored, before.now());
    EXPECT_EQ(after.FindSummary(job)->state(), v1::JOB_STATE_CANCELLED);
    EXPECT_THAT(after.FindSummary(job)->reason(), HasSubstr("cancelled by the user"));
    EXPECT_EQ(after.FindRun(job), nullptr);

    ASSERT_THAT(before.coordinator().CancelJob(job, before.now()), IsOk());
    EXPECT_FALSE(before.coordinator().CheckCancel(job)->has_value()) << "there is nothing to keep";
  }
}

// While workers are being started nothing is done about it yet, and it must not be forgotten.
TEST(Restore, CancellationAtEveryMoment_IsInTheRecordUntilTheEnd) {
  for (int64_t at_ms = 0; at_ms < 1200; at_ms += 7) {
    SimulatedCluster cluster({.workers = 2, .delay_ms_min = 50, .delay_ms_max = 50});
    const std::string job = cluster.Submit(SavedJob(8, 2));
    cluster.RunFor(at_ms);
    if (IsTerminal(cluster.Summary(job).state())) break;
    ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
    cluster.PerformEffects();
    const bool ended = IsTerminal(cluster.Summary(job).state());
    EXPECT_EQ(cluster.Saved(job).cancel_reason(), ended ? "" : "cancelled by the user") << at_ms;
  }
}

// ----------------------------------------------------------------------- the coordinator is killed

// Between two turns, or in the middle of one: what is to be kept is written, and nothing is done about it.
enum class Death { kBetweenTurns, kAfterWriting };
constexpr Death kDeaths[] = {Death::kBetweenTurns, Death::kAfterWriting};

// Its clock is an hour back when it starts again.
void KillCoordinator(SimulatedCluster& cluster, Death death) {
  cluster.MoveWallClock(-3'600'000);
  if (death == Death::kBetweenTurns) {
    cluster.RestartCoordinator();
  } else {
    cluster.RestartCoordinatorAfterWriting();
  }
}

TEST(CoordinatorKilled, AtEveryMoment_TheJobSucceeds) {
  for (const Death death : kDeaths) {
    for (int64_t at_ms = 0; at_ms < 1200; at_ms += 7) {
      SCOPED_TRACE(testing::Message() << at_ms << " ms, death " << static_cast<int>(death));
      SimulatedCluster cluster({.workers = 2, .delay_ms_min = 5, .delay_ms_max = 5});
      v1::JobSpec spec = SavedJob(8, 2);
      spec.mutable_checkpoint()->set_every_steps(3);
      const std::string job = cluster.Submit(spec);
      cluster.At(at_ms, [&] { KillCoordinator(cluster, death); });
      ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
      EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
      EXPECT_EQ(cluster.Saved(job).result().steps(), 8);
      EXPECT_EQ(cluster.Saved(job).result().checkpoint(), "/ckpt/step-8");
      ExpectCleanEnd(cluster);
    }
  }
}

// The epochs of the runs that measure are the job's, too: those runs have the same names when it is planned again.
TEST(CoordinatorKilled, DiskIsAwayWhenItIsBack_TheJobLooksAgain) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(50, 2));
  cluster.RunFor(3000);
  cluster.disk_back_ms = 20'000;
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.Summary(job).error();
}

TEST(CoordinatorKilled, WhileAJobRecovers_ItGoesOnRecoveringBeforeAllOthers) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(50, 2));
  const std::string behind = cluster.Submit(SmallJob(2, 1));
  cluster.RunFor(2000);
  cluster.Kill(1);
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RECOVERING));
  cluster.RestartCoordinator();
  cluster.RunFor(5000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(cluster.Summary(behind).reason(), absl::StrCat("waits behind job ", job));
  cluster.Restart(1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Summary(behind).state(), v1::JOB_STATE_SUCCEEDED);
  const v1::JobResult& result = cluster.Saved(job).result();
  EXPECT_EQ(result.attempts_size(), 2);
  EXPECT_NE(result.attempts(0).cause(), v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED);
}

// With fewer stages it would be another training.
TEST(CoordinatorKilled, WhileAJobThatNeedsItsWorkersRecovers_ItTakesNoFewer) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(4000);
  v1::JobSpec spec = SavedJob(200, 0);
  spec.mutable_pipeline()->set_method("pipedream");
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_recovery()->set_wait_seconds(30);
  const std::string job = cluster.Submit(std::move(spec));
  cluster.RunFor(3000);
  cluster.Kill(2);
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RECOVERING));
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(cluster.Summary(job).error(),
              AllOf(HasSubstr("for 3 workers, and 2 are free"), HasSubstr("another training")));
}

TEST(CoordinatorKilled, WhileAJobIsPlanned_ItIsPlannedAgain) {
  for (const Death death : kDeaths) {
    for (int64_t at_ms = 0; at_ms < 1500; at_ms += 50) {
      SCOPED_TRACE(testing::Message() << at_ms << " ms, death " << static_cast<int>(death));
      SimulatedCluster cluster({.workers = 2, .delay_ms_min = 5, .delay_ms_max = 5});
      v1::JobSpec spec = SavedJob(8, 2);
      spec.mutable_planning()->set_split("measured");
      const std::string job = cluster.Submit(spec);
      for (const int64_t kill_ms : {at_ms, at_ms + 1300}) {
        cluster.At(kill_ms, [&] { KillCoordinator(cluster, death); });
      }
      ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
      EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
      ExpectCleanEnd(cluster);
    }
  }
}

TEST(CoordinatorKilled, WhileAWorkerLeaves_TheJobSucceeds) {
  for (const Death death : kDeaths) {
    for (int64_t at_ms = 1000; at_ms < 2000; at_ms += 7) {
      SCOPED_TRACE(testing::Message() << at_ms << " ms, death " << static_cast<int>(death));
      SimulatedCluster cluster({.workers = 3, .delay_ms_min = 5, .delay_ms_max = 5});
      const std::string job = cluster.Submit(SavedJob(30, 2));
      cluster.At(1000, [&] { cluster.Leave(1); });
      cluster.At(at_ms, [&] { KillCoordinator(cluster, death); });
      ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
      EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
      EXPECT_EQ(cluster.Saved(job).result().steps(), 30);
      ExpectCleanEnd(cluster);
    }
  }
}

// Whatever the job was doing when the cancellation was answered, and with or without checkpoints.
TEST(CoordinatorKilled, AfterACancellation_TheJobEndsCancelled) {
  for (const char* directory : {"/ckpt", ""}) {
    for (int64_t cancel_ms = 0; cancel_ms < 700; cancel_ms += 7) {
      for (const int64_t after_ms : {0, 4, 30, 110, 160}) {
        SCOPED_TRACE(testing::Message() << cancel_ms << " + " << after_ms << " ms " << directory);
        SimulatedCluster cluster({.workers = 2, .delay_ms_min = 5, .delay_ms_max = 5});
        v1::JobSpec spec = SmallJob(1000, 2);
        spec.mutable_checkpoint()->set_directory(directory);
        const std::string job = cluster.Submit(spec);
        cluster.At(cancel_ms, [&] {
          ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
          cluster.PerformEffects();
        });
        cluster.At(cancel_ms + after_ms, [&] { cluster.RestartCoordinator(); });
        ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
        EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_CANCELLED) << cluster.transcript();
        EXPECT_THAT(cluster.Summary(job).reason(), HasSubstr("cancelled by the user"));
        ExpectCleanEnd(cluster);
      }
    }
  }
}

// It counts job ids from 1 again, which its workers know, and the clock does not help.
TEST(CoordinatorKilled, RecordsLostAndClockBack_TheSameIdBeginsAboveWhatWorkersHaveSeen) {
  for (const bool profiles : {false, true}) {
    SimulatedCluster cluster({.workers = 2});
    cluster.RunFor(10);
    const std::string lost = cluster.Submit(SmallJob(1000, 2));
    cluster.RunFor(1000);
    ASSERT_EQ(cluster.Summary(lost).state(), v1::JOB_STATE_RUNNING);
    const int64_t epoch = cluster.Saved(lost).epoch();
    cluster.MoveWallClock(-3'600'000);
    cluster.RestartCoordinator(/*has_records=*/false);
    v1::ProfileSpec profile = SmallProfile();
    profile.set_workers(2);
    const std::string job =
        profiles ? cluster.SubmitProfile(SmallJob(8, 2), profile) : cluster.Submit(SmallJob(8, 2));
    EXPECT_EQ(job, lost);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
    EXPECT_EQ(cluster.Saved(job).epoch(), epoch + 1);
    EXPECT_THAT(cluster.Logs(job), Contains(HasSubstr(absl::StrCat("has seen epoch ", epoch))));
    ExpectCleanEnd(cluster);
  }
}

// As a slow network may bring it, long after the job went back to the queue and on.
TEST(Report, OfAnEarlierAttempt_IsRefusedAndChangesNothing) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(100, 1));
  cluster.RunFor(1000);
  v1::ReportRunRequest stale = cluster.ReportOf(job, 0);
  stale.add_events()->mutable_step_done()->set_step(90);
  stale.add_events()->mutable_run_failed()->set_message("of the attempt before");
  cluster.ForgetRuns();
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RUNNING));
  ASSERT_GT(cluster.coordinator().FindRun(job)->epoch(), stale.epoch());
  const std::string before = cluster.coordinator().FindRun(job)->Record().SerializeAsString();
  const int64_t rejected = cluster.coordinator().rejected().count(Rejection::kStaleEpoch);
  EXPECT_THAT(cluster.coordinator().ReportRun(stale, cluster.now()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("is over")));
  EXPECT_EQ(cluster.coordinator().rejected().count(Rejection::kStaleEpoch), rejected + 1);
  EXPECT_THAT(cluster.coordinator().TakeEffects(), IsEmpty());
  EXPECT_EQ(cluster.coordinator().FindRun(job)->Record().SerializeAsString(), before);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(Report, WithAGap_IsNotTakenUntilTheEventsBeforeHaveCome) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(1000, 1));
  cluster.RunFor(50);  // it trains, and no step is done
  v1::ReportRunRequest report = cluster.ReportOf(job, 0);
  for (int64_t step = 1; step <= 3; ++step) {
    report.add_events()->mutable_step_done()->set_step(step);
  }
  Coordinator& coordinator = cluster.coordinator();
  ASSERT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RUNNING);
  v1::ReportRunRequest later = report;
  later.set_first_sequence(1);
  later.mutable_events()->DeleteSubrange(0, 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(v1::ReportRunResponse answer,
                                coordinator.ReportRun(later, cluster.now()));
  EXPECT_EQ(answer.next_sequence(), 0);
  EXPECT_EQ(cluster.Summary(job).step(), 0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(answer, coordinator.ReportRun(report, cluster.now()));
  EXPECT_EQ(answer.next_sequence(), 3);
  EXPECT_EQ(cluster.Summary(job).step(), 3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(answer, coordinator.ReportRun(later, cluster.now()));
  EXPECT_EQ(answer.next_sequence(), 3) << "they have come before";
  later.set_first_sequence(5);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(answer, coordinator.ReportRun(later, cluster.now()));
  EXPECT_EQ(answer.next_sequence(), 3);
}

}  // namespace
}  // namespace penstock
