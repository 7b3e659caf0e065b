// A coordinator that is killed and starts again goes on with the runs under way.
#include "coordinator/adoption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/ends.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::JobSpec CutJob(int64_t steps, int32_t stages, int64_t every_steps) {
  v1::JobSpec spec = SmallJob(steps, stages);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(every_steps);
  return spec;
}

// Its workers trained from the first step to the last, as if nothing had happened.
void ExpectOneAttempt(SimulatedCluster& cluster, const std::string& job, int64_t steps) {
  ASSERT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
  const v1::JobResult& result = cluster.Saved(job).result();
  EXPECT_EQ(result.attempts_size(), 1) << cluster.transcript();
  EXPECT_EQ(result.steps(), steps);
  EXPECT_EQ(result.tokens(), steps * 128);
  EXPECT_EQ(result.recoveries(), 0);
  std::vector<int64_t> expected(steps), curve;
  std::iota(expected.begin(), expected.end(), int64_t{1});
  for (const v1::LossPoint& point : result.losses()) curve.push_back(point.step());
  EXPECT_EQ(curve, expected);
  std::set<int64_t> told;
  for (const v1::JobEvent& event : cluster.Events(job)) {
    if (event.has_step_done()) told.insert(event.step_done().step());
  }
  EXPECT_EQ(told.size(), static_cast<size_t>(steps));
  ExpectCleanEnd(cluster);
}

// Returns a job that was submitted and has done that many steps.
std::string TrainTo(int64_t step, const v1::JobSpec& spec, SimulatedCluster& cluster) {
  const std::string job = cluster.Submit(spec);
  EXPECT_TRUE(cluster.RunUntil([&] { return cluster.Summary(job).step() == step; }));
  return job;
}

bool IsRunning(SimulatedCluster& cluster, const std::string& job) {
  return cluster.Summary(job).state() == v1::JOB_STATE_RUNNING;
}

TEST(Adoption, CoordinatorKilledWhileAJobTrains_NoStepIsLostOrDoneAgain) {
  for (const bool attached : {false, true}) {
    for (const bool after_writing : {false, true}) {
      for (int64_t kill_ms = 150; kill_ms < 2400; kill_ms += 11) {
        SCOPED_TRACE(testing::Message() << kill_ms << " ms, attached " << attached
                                        << ", after writing " << after_writing);
        SimulatedCluster cluster(
            {.workers = 3, .delay_ms_min = 5, .delay_ms_max = 5, .attached = attached});
        const std::string job = cluster.Submit(CutJob(20, 3, 4));
        cluster.RunFor(kill_ms);
        const bool adopts = IsRunning(cluster, job);
        after_writing ? cluster.RestartCoordinatorAfterWriting() : cluster.RestartCoordinator();
        ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
        if (adopts && !after_writing) {
          ExpectOneAttempt(cluster, job, 20);
          std::set<int64_t> saved;  // a commit that nobody heard of is done again
          for (const Manifest& manifest : cluster.commits()) saved.insert(manifest.step);
          EXPECT_THAT(saved, ElementsAre(4, 8, 12, 16, 20));
          EXPECT_THAT(cluster.Logs(job), Contains(HasSubstr("no step is lost")));
        } else {
          EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
          ExpectCleanEnd(cluster);
        }
      }
    }
  }
}

// Without the directory, a restart ended the job before.
TEST(Adoption, JobWithoutCheckpoints_GoesOnAsWell) {
  SimulatedCluster cluster({.workers = 2});
  const std::string job = cluster.Submit(SmallJob(60, 2));
  for (const int64_t at_ms : {1000, 1010, 2500, 4000}) {
    cluster.At(at_ms, [&] { cluster.RestartCoordinator(); });
  }
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  ExpectOneAttempt(cluster, job, 60);
}

// Messages are lost, late and twice, and the coordinator is killed again while it waits.
TEST(Adoption, BadNetwork_TheJobSucceeds) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedCluster cluster({.seed = seed,
                              .workers = 3,
                              .delay_ms_max = 60,
                              .loss_percent = 10,
                              .duplicate_percent = 10,
                              .replay_percent = 10,
                              .overtaken_percent = 20,
                              .commit_failure_percent = 10,
                              .attached = seed % 2 == 0});
    const std::string job = cluster.Submit(CutJob(40, 3, 1 + static_cast<int64_t>(seed % 7)));
    for (int64_t at_ms = 1000 + static_cast<int64_t>(seed * 13 % 700); at_ms < 4000; at_ms += 613) {
      cluster.At(at_ms, [&] { cluster.RestartCoordinator(); });
    }
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    const std::string error = cluster.Summary(job).error();
    if (error.empty()) {
      EXPECT_EQ(cluster.Saved(job).result().steps(), 40);
      EXPECT_EQ(cluster.Saved(job).result().tokens(), 40 * 128);
    } else {
      EXPECT_THAT(error, HasSubstr("could not be saved")) << cluster.transcript();
    }
    ExpectCleanEnd(cluster);
  }
}

TEST(Adoption, WhileItWaits_TheJobSaysForWhom) {
  SimulatedCluster cluster({.workers = 6, .delay_ms_min = 10, .delay_ms_max = 10});
  const std::string job = cluster.Submit(SmallJob(1000, 6));
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RUNNING));
  cluster.RestartCoordinator();
  EXPECT_TRUE(IsRunning(cluster, job));
  EXPECT_EQ(cluster.Summary(job).reason(),
            "the coordinator was restarted, and waits for w0, w1, w2, w3 and 2 more");
  cluster.RunFor(2000);
  EXPECT_EQ(cluster.Summary(job).reason(), "");
  EXPECT_TRUE(IsRunning(cluster, job));
}

// Its workers are not for others meanwhile.
TEST(Adoption, JobsBehind_WaitOn) {
  SimulatedCluster cluster({.workers = 2});
  const std::string job = cluster.Submit(SmallJob(60, 2));
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RUNNING));
  const std::string next = cluster.Submit(SmallJob(3, 1));
  cluster.At(2000, [&] { cluster.RestartCoordinator(); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(next).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_GE(cluster.Summary(next).started_unix_ms(), cluster.Summary(job).ended_unix_ms());
  ExpectOneAttempt(cluster, job, 60);
}

TEST(Adoption, AllWereDoneAndNothingWasStored_TheJobEnds) {
  // The last reports come, and the coordinator is killed before or after it has written that.
  for (int64_t kill_ms = 2000; kill_ms < 2300; ++kill_ms) {
    SCOPED_TRACE(kill_ms);
    SimulatedCluster cluster({.workers = 2, .delay_ms_min = 3, .delay_ms_max = 3});
    const std::string job = cluster.Submit(SmallJob(20, 2));
    cluster.At(kill_ms, [&] { cluster.RestartCoordinatorAfterWriting(); });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    ExpectOneAttempt(cluster, job, 20);
  }
}

// The job fails in the end, also if an earlier process heard that its last checkpoint was not saved.
TEST(Adoption, LastCheckpointCouldNotBeSaved_TheJobFails) {
  for (int64_t kill_ms = 2000; kill_ms < 2200; kill_ms += 3) {
    SCOPED_TRACE(kill_ms);
    SimulatedCluster cluster({.workers = 2, .delay_ms_min = 3, .delay_ms_max = 3});
    const std::string job = cluster.Submit(CutJob(20, 2, 5));
    cluster.At(1800, [&] { cluster.disk_full = true; });
    cluster.At(kill_ms, [&] { cluster.RestartCoordinator(); });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED) << cluster.transcript();
    EXPECT_THAT(cluster.Summary(job).error(), HasSubstr("the checkpoint of step 20"));
    EXPECT_THAT(cluster.Staged(), IsEmpty());
    ExpectCleanEnd(cluster);
  }
}

// ------------------------------------------------------------------------ when it is not to be

TEST(Adoption, AWorkerIsGone_TheJobRecovers) {
  SimulatedCluster cluster({.workers = 3});
  const std::string job = TrainTo(30, CutJob(60, 2, 5), cluster);
  cluster.Kill(1);
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  const v1::JobResult& result = cluster.Saved(job).result();
  ASSERT_EQ(result.attempts_size(), 2);
  EXPECT_EQ(result.attempts(0).cause(), v1::ATTEMPT_CAUSE_WORKER_LOST);
  EXPECT_EQ(result.attempts(0).worker(), "w1") << "as its neighbour says";
  EXPECT_EQ(result.steps(), 60);
  ExpectCleanEnd(cluster);
}

TEST(Adoption, AllWorkersAreGone_TheJobRecoversAfterAWhile) {
  SimulatedCluster cluster({.workers = 4});
  const std::string job = TrainTo(30, CutJob(60, 2, 5), cluster);
  for (const int worker : {0, 1}) cluster.Kill(worker);
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  const v1::JobResult& result = cluster.Saved(job).result();
  ASSERT_EQ(result.attempts_size(), 2);
  EXPECT_EQ(result.attempts(0).cause(), v1::ATTEMPT_CAUSE_WORKER_LOST);
  EXPECT_THAT(result.attempts(0).message(), HasSubstr("has told nothing of its run for 10 s"));
  EXPECT_EQ(result.steps(), 60);
  ExpectCleanEnd(cluster);
}

// Of a process that is another there is nothing to wait for.
TEST(Adoption, AWorkerWasRestarted_TheJobRecoversAtOnce) {
  SimulatedCluster cluster({.workers = 2});
  const std::string job = TrainTo(30, CutJob(60, 2, 5), cluster);
  cluster.Kill(1);
  cluster.RestartCoordinator();
  cluster.Restart(1);
  cluster.RunFor(1500);
  EXPECT_TRUE(IsRunning(cluster, job));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const v1::JobResult& result = cluster.Saved(job).result();
  ASSERT_EQ(result.attempts_size(), 2);
  EXPECT_THAT(result.attempts(0).message(), HasSubstr("it was restarted"));
  EXPECT_EQ(result.steps(), 60);
  ExpectCleanEnd(cluster);
}

// Jobs that do not recover from failures began again after a restart, and still do.
TEST(Adoption, JobDoesNotRecoverAndAWorkerIsGone_ItBeginsAgain) {
  SimulatedCluster cluster({.workers = 3});
  v1::JobSpec spec = CutJob(60, 2, 5);
  spec.mutable_recovery()->set_mode("off");
  const std::string job = TrainTo(30, spec, cluster);
  cluster.Kill(1);
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
  EXPECT_EQ(cluster.Saved(job).result().steps(), 60);
  ExpectCleanEnd(cluster);
}

// The coordinator was killed after it had asked a worker to hold, and before it could write that.
TEST(Adoption, AWorkerIsHeld_TheJobRecovers) {
  for (const bool after_it_is_heard : {false, true}) {
    SimulatedCluster cluster({.workers = 2});
    const std::string job = TrainTo(30, CutJob(60, 2, 5), cluster);
    cluster.RestartCoordinator();
    if (after_it_is_heard) cluster.RunFor(2000);
    cluster.Hold(1);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
    const v1::JobResult& result = cluster.Saved(job).result();
    ASSERT_EQ(result.attempts_size(), 2);
    EXPECT_EQ(result.attempts(0).cause(), v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED);
    EXPECT_THAT(result.attempts(0).message(), HasSubstr("worker w1 (stage 1) is held"));
    ExpectCleanEnd(cluster);
  }
}

TEST(Adoption, AWorkerIsGoneAndNothingIsSaved_TheJobFails) {
  SimulatedCluster cluster({.workers = 2});
  const std::string job = TrainTo(30, SmallJob(1000, 2), cluster);
  cluster.Kill(1);
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(cluster.Summary(job).error(), HasSubstr("worker w1"));
  ExpectCleanEnd(cluster);
}

TEST(Adoption, CancelledMeanwhile_TheJobDrains) {
  SimulatedCluster cluster({.workers = 2, .delay_ms_min = 20, .delay_ms_max = 20});
  const std::string job = TrainTo(33, CutJob(1000, 2, 5), cluster);
  cluster.RestartCoordinator();
  ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
  cluster.PerformEffects();
  EXPECT_TRUE(IsRunning(cluster, job)) << "its workers have not come back";
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_GE(cluster.Saved(job).result().steps(), 33);
  EXPECT_EQ(cluster.commits().back().step, cluster.Saved(job).result().steps());
  ExpectCleanEnd(cluster);
}

// A run that is held waits for a word that the new process would not know to say.
TEST(Adoption, RunThatDrains_IsNotAdopted) {
  SimulatedCluster cluster({.workers = 2, .delay_ms_min = 20, .delay_ms_max = 20});
  const std::string job = TrainTo(20, CutJob(60, 2, 5), cluster);
  ASSERT_TRUE(cluster.Saved(job).has_run());
  cluster.Leave(1);
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_DRAINING));
  EXPECT_FALSE(cluster.Saved(job).has_run());
  cluster.RestartCoordinator();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_QUEUED);
}

TEST(Adoption, WorkerThatLeavesMeanwhile_IsLetGoOnceTheJobIsSaved) {
  for (int64_t after_ms = 0; after_ms < 1500; after_ms += 100) {
    SCOPED_TRACE(after_ms);
    SimulatedCluster cluster(
        {.workers = 3, .delay_ms_min = 5, .delay_ms_max = 5, .attached = true});
    const std::string job = TrainTo(12, CutJob(60, 2, 50), cluster);
    cluster.RestartCoordinator();
    cluster.RunFor(after_ms);
    cluster.Leave(1);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
    EXPECT_FALSE(cluster.alive(1));
    const v1::JobResult& result = cluster.Saved(job).result();
    ASSERT_EQ(result.attempts_size(), 2) << cluster.transcript();
    EXPECT_EQ(result.attempts(0).cause(), v1::ATTEMPT_CAUSE_LEFT) << cluster.transcript();
    EXPECT_EQ(result.steps_redone(), 0);
    ExpectCleanEnd(cluster);
  }
}

TEST(Adoption, PlanOfAnotherBuild_IsNotAdopted) {
  SimulatedCluster before({.workers = 2});
  const std::string job = before.Submit(CutJob(1000, 2, 5));
  before.RunFor(2000);
  std::vector<StoredJob> store = before.Store();
  store[0].record.mutable_plan()->set_schedule_digest("of another schedule");
  Coordinator after({});
  after.Restore(store, before.now());
  EXPECT_EQ(after.FindSummary(job)->state(), v1::JOB_STATE_QUEUED);
}

// As when the end of a job could not be stored, and its workers were given to another.
TEST(Adoption, WorkersThatAnotherJobHasGotSince_AreThatJobs) {
  SimulatedCluster before({.workers = 2});
  const std::string job = before.Submit(CutJob(1000, 2, 5));
  before.RunFor(2000);
  std::vector<StoredJob> store = before.Store();
  StoredJob later = store[0];
  later.record.mutable_summary()->set_job_id("later-1");
  later.record.mutable_spec()->mutable_checkpoint()->set_directory("/later");
  later.record.set_epoch(store[0].record.epoch() + 7);
  store.push_back(later);
  Coordinator after({});
  after.Restore(store, before.now());
  EXPECT_EQ(after.FindSummary(job)->state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(after.FindSummary("later-1")->state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(after.CheckInvariants(), IsOk());
}

// Workers of older builds forget what the coordinator has.
TEST(Adoption, WorkerLacksWhatWasNotStored_TheJobRecovers) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 1000});
  const std::string job = TrainTo(14, CutJob(30, 2, 10), cluster);
  v1::ReportRunRequest report = cluster.ReportOf(job, 1);
  cluster.RestartCoordinator();
  cluster.RunFor(700);  // it has registered
  report.set_first_sequence(1'000'000);
  ASSERT_THAT(cluster.coordinator().ReportRun(report, cluster.now()), IsOk());
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  cluster.PerformEffects();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const v1::JobResult& result = cluster.Saved(job).result();
  ASSERT_EQ(result.attempts_size(), 2);
  EXPECT_EQ(result.attempts(0).cause(), v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED);
  EXPECT_EQ(result.attempts(0).worker(), "");
  EXPECT_EQ(result.steps(), 30);
  ExpectCleanEnd(cluster);
}

TEST(Adoption, DirectoryCannotBeHadAgain_TheJobRecovers) {
  SimulatedCluster cluster({.workers = 2});
  const std::string job = TrainTo(30, CutJob(60, 2, 5), cluster);
  cluster.disk_back_ms = 6000;
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
  const v1::JobResult& result = cluster.Saved(job).result();
  ASSERT_GE(result.attempts_size(), 2);
  EXPECT_THAT(result.attempts(0).message(),
              HasSubstr("cannot have the checkpoint directory again"));
  ExpectCleanEnd(cluster);
}

TEST(Adoption, DiskHangs_TheJobWaitsAndThenRecovers) {
  SimulatedCluster cluster({.workers = 2});
  const std::string job = TrainTo(32, CutJob(60, 2, 5), cluster);
  cluster.disk_hangs = true;
  cluster.RestartCoordinator();
  cluster.RunFor(2000);
  EXPECT_TRUE(IsRunning(cluster, job));
  EXPECT_THAT(cluster.Summary(job).reason(), HasSubstr("waits for the checkpoint directory"));
  EXPECT_GT(cluster.Summary(job).step(), 32) << "steps up to the next cut are taken";
  cluster.RunFor(620'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  cluster.disk_hangs = false;
  cluster.RunFor(600'000);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  ExpectCleanEnd(cluster);
}

// --------------------------------------------------------------------------------- what is kept

TEST(Adoption, TrainsLongWithoutCuts_IsSavedNowAndThen) {
  SimulatedCluster cluster({.workers = 2});
  const std::string job = TrainTo(550, SmallJob(1000, 2), cluster);
  EXPECT_GT(cluster.Saved(job).summary().step(), 240);
  EXPECT_GT(cluster.Saved(job).run().workers(1).next_sequence(), 240);
}

TEST(RunStart, ThereAndBack_IsTheSame) {
  const FoundStart start{.checkpoint = "/c/step-3",
                         .step = 3,
                         .updates = 6,
                         .layer_updates = {6, 5},
                         .extra_cuts = {1, 2},
                         .method = "pipedream",
                         .stage_layers = {1, 1},
                         .layer_order = {"b", "a"},
                         .schedule = "F0"};
  const FoundStart back = FoundStartOf(RunStartOf(start));
  EXPECT_EQ(back.checkpoint, start.checkpoint);
  EXPECT_EQ(back.step, 3);
  EXPECT_EQ(back.updates, 6);
  EXPECT_THAT(back.layer_updates, ElementsAre(6, 5));
  EXPECT_THAT(back.extra_cuts, ElementsAre(1, 2));
  EXPECT_EQ(back.method, "pipedream");
  EXPECT_THAT(back.stage_layers, ElementsAre(1, 1));
  EXPECT_THAT(back.layer_order, ElementsAre("b", "a"));
  EXPECT_EQ(back.schedule, "F0");
}

}  // namespace
}  // namespace penstock
