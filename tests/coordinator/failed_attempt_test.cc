// Attempts that fail: jobs that are saved go on with another, others fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/ends.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

v1::JobSpec SavedJob(int64_t steps, int32_t stages, int64_t every_steps) {
  v1::JobSpec spec = SmallJob(steps, stages);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(every_steps);
  return spec;
}

// The job has done all its steps, and each was told once and is in the curve once.
void ExpectEachStepOnce(SimulatedCluster& cluster, const std::string& job, int64_t steps) {
  std::vector<int64_t> expected(steps);
  std::iota(expected.begin(), expected.end(), int64_t{1});
  std::vector<int64_t> told;
  for (const v1::JobEvent& event : cluster.Events(job)) {
    if (event.has_step_done()) told.push_back(event.step_done().step());
  }
  EXPECT_EQ(told, expected);
  const v1::JobResult& result = cluster.Saved(job).result();
  std::vector<int64_t> curve;
  for (const v1::LossPoint& point : result.losses()) curve.push_back(point.step());
  EXPECT_EQ(curve, expected);
  EXPECT_EQ(result.steps(), steps);
  EXPECT_EQ(result.tokens(), steps * 128);
}

TEST(WorkerKilled, AtEveryMoment_TheJobSucceeds) {
  for (const int workers : {2, 3}) {  // with three, one is free
    for (int64_t at_ms = 0; at_ms < 1200; at_ms += 7) {
      SCOPED_TRACE(testing::Message() << at_ms << " ms, " << workers << " workers");
      SimulatedCluster cluster({.workers = workers, .delay_ms_min = 5, .delay_ms_max = 5});
      const std::string job = cluster.Submit(SavedJob(8, 2, 3));
      cluster.At(at_ms, [&] { cluster.Kill(1); });
      cluster.At(at_ms + 500, [&] { cluster.Restart(1); });
      ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
      EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
      EXPECT_EQ(cluster.Saved(job).result().checkpoint(), "/ckpt/step-8");
      ExpectEachStepOnce(cluster, job, 8);
      ExpectCleanEnd(cluster);
    }
  }
}

TEST(WorkerKilled, NoOtherIsFree_TheJobWaitsUntilItIsBack) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(30, 2, 5));
  cluster.At(1000, [&] { cluster.Kill(1); });
  cluster.At(5000, [&] { cluster.Restart(1); });
  cluster.RunFor(1990);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(cluster.Summary(job).reason(),
              HasSubstr("waits for workers: needs 2, the cluster has 1"));
  EXPECT_EQ(cluster.Summary(job).step(), 9) << "what was done is not taken back";
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  ExpectEachStepOnce(cluster, job, 30);
  const v1::JobResult& result = cluster.Saved(job).result();
  EXPECT_EQ(result.recoveries(), 1);
  ASSERT_EQ(result.attempts_size(), 2);
  const v1::Attempt& failed = result.attempts(0);
  EXPECT_EQ(failed.first_step(), 0);
  EXPECT_EQ(failed.last_step(), 9);
  EXPECT_EQ(failed.steps_redone(), 4);
  EXPECT_EQ(failed.cause(), v1::ATTEMPT_CAUSE_WORKER_LOST);
  EXPECT_EQ(failed.worker(), "w1");
  EXPECT_THAT(failed.message(), HasSubstr("went away"));
  EXPECT_GT(failed.detected_ms(), 0);
  EXPECT_GT(failed.resumed_ms(), failed.detected_ms() + 3900);
  EXPECT_LT(failed.resumed_ms(), failed.detected_ms() + 4100);
  const v1::Attempt& last = result.attempts(1);
  EXPECT_EQ(last.epoch(), cluster.Saved(job).epoch());
  EXPECT_GT(last.epoch(), failed.epoch());
  EXPECT_EQ(last.first_step(), 5);
  EXPECT_EQ(last.last_step(), 30);
  EXPECT_EQ(last.cause(), v1::ATTEMPT_CAUSE_UNSPECIFIED);
  EXPECT_THAT(
      cluster.Logs(job),
      ElementsAre(HasSubstr("w1 (stage 1): went away: lost w1; the job recovers and goes on "
                            "after step 5, 4 steps are done again"),
                  HasSubstr("continues after step 5 from /ckpt/step-5"),
                  HasSubstr("goes on after step 5")));
}

// Another job would otherwise begin on the worker that is left.
TEST(WorkerKilled, JobsBehindIt_WaitUntilItTrainsAgain) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(30, 2, 5));
  const std::string behind = cluster.Submit(SmallJob(2, 1));
  cluster.At(1000, [&] { cluster.Kill(1); });
  cluster.At(5000, [&] { cluster.Restart(1); });
  cluster.RunFor(3000);
  EXPECT_EQ(cluster.Summary(behind).reason(), absl::StrCat("waits behind job ", job));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Summary(behind).state(), v1::JOB_STATE_SUCCEEDED);
}

// The workers that are left stop one after the other, and those that have stopped are not for others.
TEST(WorkerKilled, JobsBehindIt_WaitWhileItsWorkersStop) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(30, 3, 5));
  const std::string behind = cluster.Submit(SmallJob(2, 1));
  cluster.At(1000, [&] {
    cluster.FreezeExecutor(1);
    cluster.Kill(2);
  });
  cluster.At(6000, [&] { cluster.ThawExecutor(1); });
  cluster.At(8000, [&] { cluster.Restart(2); });
  cluster.RunFor(5000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(cluster.Summary(behind).reason(), absl::StrCat("waits behind job ", job));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Summary(behind).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(WorkerKilled, WhileTheCheckpointIsSought_AnotherIsTaken) {
  SimulatedCluster cluster({.workers = 3, .delay_ms_min = 20'000, .delay_ms_max = 20'000});
  cluster.RunFor(20'010);
  const std::string job = cluster.Submit(SavedJob(10, 2, 5));
  cluster.Kill(1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
  EXPECT_THAT(WorkersOf(cluster.Saved(job)), ElementsAre("w0", "w2"));
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(WorkerKilled, JobThatIsNotSaved_BeginsAgainIfItSaysSo) {
  for (const bool says_so : {true, false}) {
    SimulatedCluster cluster({.workers = 2});
    cluster.RunFor(10);
    v1::JobSpec spec = SmallJob(20, 2);
    if (says_so) spec.mutable_recovery()->set_mode("auto");
    const std::string job = cluster.Submit(spec);
    cluster.At(1000, [&] { cluster.Kill(1); });
    cluster.At(3000, [&] { cluster.Restart(1); });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    EXPECT_EQ(cluster.Summary(job).state(),
              says_so ? v1::JOB_STATE_SUCCEEDED : v1::JOB_STATE_FAILED);
    const v1::JobResult& result = cluster.Saved(job).result();
    EXPECT_EQ(result.attempts(0).cause(), v1::ATTEMPT_CAUSE_WORKER_LOST);
    EXPECT_EQ(result.attempts_size(), says_so ? 2 : 1);
    if (says_so) ExpectEachStepOnce(cluster, job, 20);
    ExpectCleanEnd(cluster);
  }
}

// It does not answer, and is known as alive until its heartbeat has been missing for too long.
TEST(WorkerFrozen, AnotherTakesItsPlace) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(60, 2, 5));
  cluster.At(1000, [&] { cluster.Freeze(1); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(WorkersOf(cluster.Saved(job)), ElementsAre("w0", "w2"));
  EXPECT_THAT(cluster.Saved(job).result().attempts(0).message(), HasSubstr("no heartbeat"));
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

// Its process answers and its heartbeats come, but it neither trains nor stops.
TEST(ExecutorStuck, AnotherTakesItsPlace) {
  SimulatedCluster cluster({.workers = 3, .attached = true});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(60, 2, 5));
  cluster.At(1000, [&] { cluster.FreezeExecutor(1); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(WorkersOf(cluster.Saved(job)), ElementsAre("w0", "w2"));
  const v1::Attempt& attempt = cluster.Saved(job).result().attempts(0);
  EXPECT_EQ(attempt.cause(), v1::ATTEMPT_CAUSE_STALLED);
  EXPECT_EQ(attempt.worker(), "w1");
  EXPECT_THAT(attempt.message(), HasSubstr("is stuck"));
  const auto& stuck = cluster.coordinator().losses().by_cause[static_cast<int>(LossCause::kStuck)];
  EXPECT_EQ(stuck.count, 1);
  EXPECT_LT(stuck.detection_seconds, 3.6);
  EXPECT_LT(attempt.resumed_ms() - attempt.detected_ms(), 100) << "nobody waits for it to stop";
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(ExecutorStuck, ForLessThanTheLimit_IsNoFailure) {
  SimulatedCluster cluster({.workers = 2, .attached = true});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(60, 2, 5));
  cluster.At(1000, [&] { cluster.FreezeExecutor(1); });
  cluster.At(3400, [&] { cluster.ThawExecutor(1); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().attempts_size(), 1);
}

// ------------------------------------------------------------------------------------------ bounds

// Has a worker's run fail `after_ms` after the job has begun to train. Returns false if it is over before.
bool FailNextAttempt(SimulatedCluster& cluster, const std::string& job, int64_t after_ms) {
  while (cluster.Summary(job).state() != v1::JOB_STATE_RUNNING) {
    if (IsTerminal(cluster.Summary(job).state())) return false;
    cluster.RunFor(10);
  }
  cluster.RunFor(after_ms);
  cluster.FailRunIfTraining(1, "went wrong");
  cluster.RunFor(20);
  return true;
}

TEST(RunFails, EveryTimeBeforeItComesFurther_FailsTheJobWithCauseAndAttempts) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(1000, 2, 5));
  int attempts = 0;
  while (FailNextAttempt(cluster, job, attempts == 0 ? 750 : 150)) ++attempts;
  EXPECT_EQ(attempts, 4);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(cluster.Summary(job).error(),
              AllOf(HasSubstr("worker w1 (stage 1): went wrong"),
                    HasSubstr("3 attempts in a row came no further than step 7"),
                    HasSubstr("recovery.no_progress_max is 3"),
                    HasSubstr("--resume latest` goes on from ")));
  const v1::JobResult& result = cluster.Saved(job).result();
  ASSERT_EQ(result.attempts_size(), 4);
  for (const v1::Attempt& attempt : result.attempts()) {
    EXPECT_EQ(attempt.cause(), v1::ATTEMPT_CAUSE_RUN_FAILED);
    EXPECT_EQ(attempt.worker(), "w1");
  }
  EXPECT_THAT(cluster.Logs(job), Contains(HasSubstr("is done again, in 2 s")));
  const auto waited_ms = [&](int attempt) {
    return result.attempts(attempt).resumed_ms() - result.attempts(attempt).detected_ms();
  };
  EXPECT_LT(waited_ms(0), 1000);
  EXPECT_GE(waited_ms(1), 1000);
  EXPECT_GE(waited_ms(2), 2000);
  ExpectCleanEnd(cluster);
}

TEST(RunFails, MoreOftenThanTheJobSays_FailsIt) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  v1::JobSpec spec = SavedJob(1000, 2, 5);
  spec.mutable_recovery()->set_restarts_max(2);
  const std::string job = cluster.Submit(spec);
  int attempts = 0;
  while (FailNextAttempt(cluster, job, 2000)) ++attempts;
  EXPECT_EQ(attempts, 3);
  EXPECT_THAT(cluster.Summary(job).error(), HasSubstr("recovery.restarts_max is 2"));
}

TEST(RunFails, OnOneWorkerTwice_ItIsLeftOutWhereAnotherIsFree) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(60, 2, 5));
  ASSERT_TRUE(FailNextAttempt(cluster, job, 1000));
  ASSERT_TRUE(FailNextAttempt(cluster, job, 1500));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(WorkersOf(cluster.Saved(job)), ElementsAre("w0", "w2"));
}

// It is a matter of the job, not of its workers.
TEST(RunFails, LossIsNotFinite_FailsTheJobAtOnce) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(1000, 2, 5));
  cluster.RunFor(1000);
  const JobRun* const run = cluster.coordinator().FindRun(job);
  v1::ReportRunRequest report;
  report.set_worker("w1");
  report.set_incarnation(101);
  report.set_job_id(job);
  report.set_epoch(run->epoch());
  report.set_first_sequence(run->NextSequence(1));
  v1::RunFailed& failed = *report.add_events()->mutable_run_failed();
  failed.set_message("the loss of step 9 is not finite");
  failed.set_not_finite(true);
  ASSERT_THAT(cluster.coordinator().ReportRun(report, cluster.now()), IsOk());
  cluster.PerformEffects();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(cluster.Summary(job).error(),
              AllOf(StartsWith("worker w1 (stage 1): the loss of step 9 is not finite; when that"),
                    HasSubstr("--resume latest` goes on from /ckpt/step-")));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  ASSERT_EQ(cluster.Saved(job).result().attempts_size(), 1);
  EXPECT_EQ(cluster.Saved(job).result().attempts(0).cause(), v1::ATTEMPT_CAUSE_WOULD_REPEAT);
}

// Another worker may have what one lacks; if two lack it, it is the job.
TEST(CannotPrepare, OneWorker_IsAvoided_TwoWorkers_FailTheJobAtOnce) {
  for (const bool both : {false, true}) {
    SCOPED_TRACE(both);
    SimulatedCluster cluster({.workers = 3});
    cluster.cannot_prepare[1] = absl::NotFoundError("text.txt: no such file");
    if (both) cluster.cannot_prepare[0] = cluster.cannot_prepare[1];
    cluster.RunFor(10);
    const std::string job = cluster.Submit(SavedJob(20, 2, 5));
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    const v1::JobResult& result = cluster.Saved(job).result();
    if (both) {
      EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
      EXPECT_THAT(cluster.Summary(job).error(),
                  AllOf(HasSubstr("no such file"), HasSubstr("in the same way")));
      ASSERT_EQ(result.attempts_size(), 1);
      EXPECT_EQ(result.attempts(0).cause(), v1::ATTEMPT_CAUSE_WOULD_REPEAT);
    } else {
      EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
      ASSERT_EQ(result.attempts_size(), 3);
      EXPECT_EQ(result.attempts(1).cause(), v1::ATTEMPT_CAUSE_RUN_FAILED);
      EXPECT_EQ(result.attempts(1).worker(), "w1");
      EXPECT_THAT(WorkersOf(cluster.Saved(job)), ElementsAre("w0", "w2"));
    }
    ExpectCleanEnd(cluster);
  }
}

// Its disk comes back, or does not.
TEST(DiskAway, WhileTheJobRecovers_ItLooksAgainForAWhile) {
  for (const bool comes_back : {true, false}) {
    SCOPED_TRACE(comes_back);
    SimulatedCluster cluster({.workers = 2});
    cluster.RunFor(10);
    v1::JobSpec spec = SavedJob(30, 2, 5);
    spec.mutable_recovery()->set_wait_seconds(20);
    const std::string job = cluster.Submit(spec);
    cluster.At(1000, [&] {
      cluster.disk_back_ms = comes_back ? 8000 : kLimitMs;
      cluster.Kill(1);
      cluster.Restart(1);
    });
    cluster.RunFor(5000);
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
    EXPECT_THAT(cluster.Summary(job).reason(), HasSubstr("Input/output error"));
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    if (comes_back) {
      EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
      ExpectEachStepOnce(cluster, job, 30);
    } else {
      EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
      EXPECT_THAT(cluster.Summary(job).error(),
                  AllOf(HasSubstr("cannot start: Input/output error"), HasSubstr("times in")));
      EXPECT_LT(cluster.now().monotonic_ns, 60'000 * kNsPerMs);
    }
    ExpectCleanEnd(cluster);
  }
}

// ------------------------------------------------------------- workers that hang while others leave

// The worker that hangs neither holds nor stops; the drain's limit ends the attempt and not the job.
TEST(ExecutorStuck, WhileTheJobDrains_TheJobGoesOnFromItsCheckpoint) {
  SimulatedCluster cluster({.workers = 3});  // of an older build: no pulse
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(60, 2, 5));
  cluster.At(1000, [&] {
    cluster.FreezeExecutor(1);
    cluster.Leave(0);
  });
  cluster.At(200'000, [&] { cluster.Restart(0); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(WorkersOf(cluster.Saved(job)), ElementsAre("w0", "w2"));
  const v1::Attempt& attempt = cluster.Saved(job).result().attempts(0);
  EXPECT_EQ(attempt.cause(), v1::ATTEMPT_CAUSE_STALLED);
  EXPECT_THAT(attempt.message(), HasSubstr("did not drain within 120 s"));
  ExpectEachStepOnce(cluster, job, 60);
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

// One is killed, and another does not stop: it is not waited for beyond the limit, and gets no work.
TEST(ExecutorStuck, WhileTheJobStops_ItIsLeftOut) {
  SimulatedCluster cluster({.workers = 5});  // of an older build: no pulse
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(60, 3, 5));
  cluster.At(1000, [&] {
    cluster.FreezeExecutor(0);
    cluster.Kill(2);
  });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(WorkersOf(cluster.Saved(job)), ElementsAre("w1", "w3", "w4"));
  const v1::Attempt& attempt = cluster.Saved(job).result().attempts(0);
  EXPECT_EQ(attempt.worker(), "w2");
  EXPECT_GT(attempt.resumed_ms() - attempt.detected_ms(), 29'000) << "known at once, then waited";
  ExpectEachStepOnce(cluster, job, 60);
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(TooFewWorkers, MethodWithLateGradients_WaitsAndThenFailsNamingWhatIsLacking) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  v1::JobSpec spec = SavedJob(1000, 2, 5);
  spec.mutable_pipeline()->set_method("pipedream");
  spec.mutable_model()->mutable_gpt()->set_tied_head(false);
  spec.mutable_recovery()->set_wait_seconds(20);
  const std::string job = cluster.Submit(spec);
  cluster.At(1000, [&] { cluster.Kill(1); });
  cluster.RunFor(20'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_LT(cluster.now().monotonic_ns, 25'000 * kNsPerMs);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(
      cluster.Summary(job).error(),
      AllOf(HasSubstr("worker w1 (stage 1): went away"),
            HasSubstr("waited 20 s for 2 workers, and 1 is free"), HasSubstr("with pipedream")));
  ExpectCleanEnd(cluster);
}

TEST(TooFewWorkers, MethodThatDrainsAtEveryStep_GoesOnWithFewerAfterAWhile) {
  for (const int32_t stages : {3, 0}) {  // 0: as many as there are workers
    SimulatedCluster cluster({.workers = 3});
    cluster.RunFor(4000);  // settled
    v1::JobSpec spec = SavedJob(40, stages, 5);
    spec.mutable_recovery()->set_wait_seconds(20);
    const std::string job = cluster.Submit(spec);
    cluster.At(6000, [&] { cluster.Kill(2); });
    cluster.RunFor(20'000);
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
    EXPECT_THAT(WorkersOf(cluster.Saved(job)), ElementsAre("w0", "w1"));
    EXPECT_THAT(cluster.Logs(job), Contains(HasSubstr("goes on with 2 workers instead of 3")));
    ExpectEachStepOnce(cluster, job, 40);
    ExpectCleanEnd(cluster);
  }
}

TEST(TooFewWorkers, FewerStagesThanTheJobWants_FailsIt) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  v1::JobSpec spec = SavedJob(1000, 3, 5);
  spec.mutable_recovery()->set_wait_seconds(20);
  spec.mutable_recovery()->set_stages_min(3);
  const std::string job = cluster.Submit(spec);
  cluster.At(1000, [&] { cluster.Kill(2); });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_THAT(cluster.Summary(job).error(), HasSubstr("needs workers for at least 3 stages"));
}

// -------------------------------------------------------------------- while the job recovers

// The first to recover comes first, and only the time counts in which a job could begin.
TEST(Recovering, TwoJobs_EachHasItsTimeToWait) {
  SimulatedCluster cluster({.workers = 4});
  cluster.RunFor(10);
  std::vector<std::string> jobs;
  for (const char* directory : {"/ckpt-a", "/ckpt-b"}) {
    v1::JobSpec spec = SavedJob(400, 2, 5);
    spec.mutable_pipeline()->set_method("pipedream");
    spec.mutable_model()->mutable_gpt()->set_tied_head(false);
    spec.mutable_checkpoint()->set_directory(directory);
    spec.mutable_recovery()->set_wait_seconds(20);
    jobs.push_back(cluster.Submit(spec));
  }
  cluster.At(1000, [&] {
    for (const int worker : {0, 1, 2}) cluster.Kill(worker);
  });
  cluster.RunFor(6000);
  for (const std::string& job : jobs) {
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  }
  // The one whose neighbours told of it first begins with two workers. The other has waited behind it until then, and waits
  // another 18 s for workers of its own.
  cluster.At(16'000, [&] { cluster.Restart(0); });
  cluster.RunFor(12'000);
  EXPECT_EQ(cluster.Summary(jobs[0]).state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(cluster.Summary(jobs[1]).state(), v1::JOB_STATE_RUNNING);
  cluster.At(34'000, [&] {
    cluster.Restart(1);
    cluster.Restart(2);
  });
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
  for (const std::string& job : jobs) {
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
    ExpectEachStepOnce(cluster, job, 400);
  }
  ExpectCleanEnd(cluster);
}

TEST(Recovering, ForLong_LetsOthersPass) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  v1::JobSpec spec = SavedJob(30, 2, 5);
  spec.mutable_recovery()->set_wait_seconds(100'000);
  const std::string job = cluster.Submit(spec);
  const std::string behind = cluster.Submit(SmallJob(2, 1));
  cluster.At(1000, [&] { cluster.Kill(1); });
  cluster.RunFor(299'000);
  EXPECT_EQ(cluster.Summary(behind).state(), v1::JOB_STATE_QUEUED);
  cluster.RunFor(5000);
  EXPECT_EQ(cluster.Summary(behind).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  cluster.Restart(1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
}

// It waits for those, however many others are free.
TEST(Recovering, JobThatNamesItsWorkers_GetsThemBack) {
  SimulatedCluster cluster({.workers = 4});
  cluster.RunFor(10);
  v1::JobSpec spec = SavedJob(30, 2, 5);
  for (const char* name : {"w2", "w1"}) spec.mutable_pipeline()->add_worker_names(name);
  const std::string job = cluster.Submit(spec);
  cluster.At(1000, [&] { cluster.Kill(1); });
  cluster.At(9000, [&] { cluster.Restart(1); });
  cluster.RunFor(5000);
  EXPECT_THAT(cluster.Summary(job).reason(), HasSubstr("waits for worker w1"));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(WorkersOf(cluster.Saved(job)), ElementsAre("w2", "w1"));
  ExpectEachStepOnce(cluster, job, 30);
  ExpectCleanEnd(cluster);
}

// Until its workers are back, nobody else begins in its directory, though no step was done.
TEST(Restarted, CoordinatorBeforeTheFirstStep_TheDirectoryStaysTheJobs) {
  SimulatedCluster cluster({.workers = 3});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(30, 2, 5));
  const std::string rival = cluster.Submit(SavedJob(5, 1, 5));
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RUNNING));
  EXPECT_EQ(cluster.Summary(job).step(), 0);
  cluster.ForgetRuns();
  cluster.RestartCoordinator();
  EXPECT_TRUE(cluster.coordinator().FindRun(job)->returned());
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Summary(rival).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

TEST(Recovering, Cancelled_EndsTheJobAtOnce) {
  for (int64_t cancel_ms = 1008; cancel_ms < 1300; cancel_ms += 3) {
    SCOPED_TRACE(cancel_ms);
    SimulatedCluster cluster({.workers = 2});
    cluster.RunFor(10);
    const std::string job = cluster.Submit(SavedJob(1000, 2, 5));
    cluster.At(1000, [&] { cluster.Kill(1); });
    cluster.RunFor(cancel_ms - 10);
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RECOVERING);
    ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
    cluster.PerformEffects();
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(cluster.Summary(job).reason(), "cancelled by the user");
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    EXPECT_THAT(cluster.Staged(), IsEmpty());
    ExpectCleanEnd(cluster);
  }
}

TEST(Recovering, CoordinatorKilled_TheJobSucceeds) {
  for (const bool after_writing : {false, true}) {
    for (int64_t at_ms = 1000; at_ms < 1300; at_ms += 3) {
      SCOPED_TRACE(testing::Message() << at_ms << " ms, after writing " << after_writing);
      SimulatedCluster cluster({.workers = 2, .delay_ms_min = 5, .delay_ms_max = 5});
      const std::string job = cluster.Submit(SavedJob(20, 2, 5));
      cluster.At(1000, [&] { cluster.Kill(1); });
      cluster.At(1150, [&] { cluster.Restart(1); });
      cluster.At(at_ms, [&] {
        if (after_writing) return cluster.RestartCoordinatorAfterWriting();
        cluster.RestartCoordinator();
      });
      ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << cluster.transcript();
      EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED) << cluster.transcript();
      EXPECT_EQ(cluster.Saved(job).result().steps(), 20);
      ExpectCleanEnd(cluster);
    }
  }
}

TEST(Recovering, CoordinatorStops_TheNextOneGoesOn) {
  SimulatedCluster before({.workers = 2});
  before.RunFor(10);
  const std::string job = before.Submit(SavedJob(1000, 2, 5));
  before.At(1000, [&] { before.Kill(1); });
  before.RunFor(1990);
  ASSERT_EQ(before.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  before.coordinator().Drain(before.now());
  before.PerformEffects();
  EXPECT_TRUE(before.coordinator().Drained());
  EXPECT_EQ(before.Summary(job).state(), v1::JOB_STATE_RECOVERING);
  Coordinator after({});
  after.Restore(before.Store(), before.now());
  EXPECT_EQ(after.FindSummary(job)->state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(after.FindRun(job)->spec().checkpoint().resume(), "latest");
  const v1::GetJobResponse record = after.FindRun(job)->Record();
  ASSERT_EQ(record.result().attempts_size(), 1);
  EXPECT_EQ(record.result().attempts(0).cause(), v1::ATTEMPT_CAUSE_WORKER_LOST)
      << "that attempt was over before";
}

TEST(Restarted, Coordinator_NotesTheAttemptThatItFinds) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(30, 2, 5));
  cluster.RunFor(1000);
  cluster.ForgetRuns();
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().losses_size(), 30);
  const v1::JobResult& result = cluster.Saved(job).result();
  ASSERT_EQ(result.attempts_size(), 2);
  EXPECT_EQ(result.attempts(0).cause(), v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED);
  EXPECT_GT(result.attempts(0).resumed_ms(), 0);
}

}  // namespace
}  // namespace penstock
