// Every wait of a job has a limit, and a worker that does not stop gets no work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "coordinator/coordinator.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Deadline, DiskHangsWhereTheStartIsSought_FailsTheJobWithItsName) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  cluster.disk_hangs = true;
  v1::JobSpec spec = SmallJob(10, 1);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  const std::string job = cluster.Submit(spec);
  cluster.RunFor(590'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_PREPARING);
  EXPECT_EQ(cluster.Summary(job).reason(), "looks in /ckpt for where to start");
  cluster.RunFor(20'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(cluster.Summary(job).error(),
              AllOf(StartsWith("cannot start: nothing was heard from the disk of /ckpt for 600 s"),
                    HasSubstr("submit the job again")));
  EXPECT_EQ(cluster.Summary(job).reason(), "");
  const std::string next = cluster.Submit(SmallJob(2, 1));
  ASSERT_TRUE(cluster.RunUntilOver(2 * kLimitMs));
  EXPECT_EQ(cluster.Summary(next).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(Deadline, DiskHangsThatMayBeOfEitherDirectory_IsToldSo) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  cluster.disk_hangs = true;
  v1::JobSpec spec = SmallJob(10, 1);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_resume("/other/step-000000000004");
  const std::string job = cluster.Submit(spec);
  EXPECT_EQ(cluster.Summary(job).reason(),
            "looks in /ckpt and /other/step-000000000004 for where to start");
  cluster.RunFor(610'000);
  EXPECT_THAT(cluster.Summary(job).error(),
              HasSubstr("from the disk of /ckpt or of /other/step-000000000004 for 600 s"));
}

TEST(Deadline, WorkerDoesNotPrepare_FailsTheJobWithItsName) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  cluster.FreezeExecutor(1);
  const std::string job = cluster.Submit(SmallJob(10, 2));
  cluster.RunFor(890'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_PREPARING);
  EXPECT_EQ(cluster.Summary(job).reason(), "waits for worker w1 (stage 1) to prepare");
  cluster.RunFor(20'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(cluster.Summary(job).error(),
            "worker w1 (stage 1): did not prepare within 900 s; restart what hangs, and submit the "
            "job again");
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

// No worker is asked while the attempt's epoch cannot be kept, so none is late.
TEST(Deadline, CallsToPrepareAreWithheld_ThatTimeIsNotTheWorkers) {
  for (const bool profiles : {false, true}) {
    SimulatedCluster cluster({.workers = 1});
    cluster.RunFor(10);
    cluster.FreezeExecutor(0);
    const v1::JobSpec spec = SmallJob(10, 1);
    const std::string job =
        profiles ? cluster.SubmitProfile(spec, SmallProfile()) : cluster.Submit(spec);
    ASSERT_TRUE(cluster.RunUntil(
        [&] { return absl::StartsWith(cluster.Summary(job).reason(), "waits for worker w0"); }));
    Coordinator& coordinator = cluster.coordinator();
    const int64_t epoch = coordinator.FindRun(job)->epoch();
    for (int call = 0; call < 2; ++call) {
      coordinator.OnAnswer(job, PrepareWithheld{epoch, true}, cluster.now());
    }
    coordinator.OnAnswer(job, PrepareWithheld{epoch - 1, false}, cluster.now());
    EXPECT_EQ(cluster.Summary(job).reason(), "waits until the coordinator can write its state");
    cluster.RunFor(2'000'000);
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_PREPARING);
    for (int call = 0; call < 2; ++call) {
      coordinator.OnAnswer(job, PrepareWithheld{epoch, false}, cluster.now());
    }
    EXPECT_THAT(cluster.Summary(job).reason(), StartsWith("waits for worker w0"));
    cluster.RunFor(890'000);
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_PREPARING);
    cluster.RunFor(20'000);
    EXPECT_THAT(cluster.Summary(job).error(), HasSubstr("did not prepare within 900 s"));
  }
}

TEST(Deadline, WorkerDoesNotStart_FailsTheJobWithItsName) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  Coordinator& coordinator = cluster.coordinator();
  v1::SubmitJobRequest request;
  *request.mutable_spec() = SmallJob(10, 2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto job, SubmitJob(coordinator, request, cluster.now()));
  const int64_t epoch = coordinator.FindRun(job)->epoch();
  v1::PrepareRunResponse prepared;
  for (const CoordinatorEffect& effect : coordinator.TakeEffects()) {
    if (const auto* call = std::get_if<CallWorker>(&effect)) {
      prepared.set_schedule_digest(
          std::get<v1::PrepareRunRequest>(call->request).plan().schedule_digest());
    }
  }
  for (const int32_t worker : {0, 1}) {
    coordinator.OnAnswer(job,
                         CallAnswer{.epoch = epoch, .worker_index = worker, .response = prepared},
                         cluster.now());
  }
  coordinator.OnAnswer(
      job, CallAnswer{.epoch = epoch, .worker_index = 0, .response = v1::StartRunResponse()},
      cluster.now());
  coordinator.TakeEffects();
  EXPECT_EQ(coordinator.FindSummary(job)->reason(), "waits for worker w1 (stage 1) to start");
  cluster.RunFor(70'000);
  EXPECT_THAT(coordinator.FindSummary(job)->error(),
              StartsWith("worker w1 (stage 1): did not start within 60 s"));
}

// A job that profiles waits for its workers in the same way.
TEST(Deadline, WorkerDoesNotPrepareToMeasure_FailsTheProfileWithItsName) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  cluster.FreezeExecutor(0);
  const std::string job = cluster.SubmitProfile(SmallJob(10, 1), SmallProfile());
  cluster.RunFor(10'000);
  EXPECT_EQ(cluster.Summary(job).reason(), "waits for worker w0 to prepare");
  cluster.RunFor(900'000);
  EXPECT_THAT(cluster.Summary(job).error(), StartsWith("worker w0 did not prepare within 900 s"));
}

TEST(Deadline, DiskHangsAtTheLastCommit_FailsTheJobWithItsName) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(OftenSavedJob(4, 2));
  cluster.RunFor(50);
  cluster.disk_hangs = true;
  cluster.RunFor(10'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(cluster.Summary(job).reason(), "waits until its checkpoint is committed in /ckpt");
  ASSERT_TRUE(cluster.RunUntilOver(2 * kLimitMs));
  EXPECT_THAT(cluster.Summary(job).error(),
              AllOf(StartsWith("training is complete, but the checkpoint of step 4"),
                    HasSubstr("the disk of /ckpt for 600 s")));
  EXPECT_EQ(cluster.Summary(job).reason(), "");
  EXPECT_THAT(cluster.Staged(), IsEmpty()) << "nobody is there when a commit fails later";
}

// Its executor thread hangs, and it answers calls: neither a drain nor a stop ends, and no heartbeat is missing.
TEST(Stuck, WorkerDoesNotStop_GetsNoWorkUntilItHas) {
  for (const bool restarts : {false, true}) {
    SimulatedCluster cluster({.workers = 2});
    cluster.RunFor(10);
    const std::string job = cluster.Submit(SmallJob(1000, 2));
    cluster.RunFor(500);
    cluster.FreezeExecutor(1);
    ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
    cluster.PerformEffects();
    cluster.RunFor(110'000);
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_DRAINING);
    EXPECT_EQ(cluster.Summary(job).reason(), "cancelled by the user");
    cluster.RunFor(50'000);
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_CANCELLED);
    EXPECT_THAT(cluster.Summary(job).reason(), HasSubstr("did not drain within 120 s"));

    const v1::ListWorkersResponse workers = cluster.coordinator().ListWorkers(cluster.now());
    EXPECT_EQ(workers.workers(0).unusable_reason(), "");
    EXPECT_THAT(workers.workers(1).unusable_reason(),
                StartsWith("worker w1 does not stop its run of job small-1, which is over"));
    EXPECT_EQ(workers.workers(1).job_id(), job);
    const std::string large = cluster.Submit(SmallJob(2, 2));
    EXPECT_THAT(cluster.Summary(large).reason(),
                AllOf(StartsWith("waits for workers: needs 2, the cluster has 1; worker w1"),
                      HasSubstr("restart the worker")));
    const std::string small = cluster.Submit(SmallJob(2, 1));
    cluster.RunFor(5'000);
    EXPECT_EQ(cluster.Summary(small).state(), v1::JOB_STATE_SUCCEEDED) << "w0 has work";
    EXPECT_EQ(cluster.Summary(large).state(), v1::JOB_STATE_QUEUED);
    restarts ? cluster.Restart(1) : cluster.ThawExecutor(1);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    EXPECT_EQ(cluster.Summary(large).state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_THAT(cluster.violations(), IsEmpty());
  }
}

// A worker that is there needs no other of its name.
TEST(Stuck, WorkerThatAJobNames_IsSaidToBeStuckAndOtherStuckOnesAreNotMentioned) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(1000, 2));
  cluster.RunFor(500);
  cluster.FreezeExecutor(1);
  ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
  cluster.PerformEffects();
  cluster.RunFor(160'000);
  std::vector<std::string> waiting;
  for (const char* name : {"w1", "w9"}) {
    v1::JobSpec spec = SmallJob(2, 1);
    spec.mutable_pipeline()->add_worker_names(name);
    waiting.push_back(cluster.Submit(spec));
  }
  EXPECT_EQ(cluster.Summary(waiting[0]).reason(),
            "waits for worker w1, which pipeline.worker_names asks for: worker w1 does not stop "
            "its run of job small-1, which is over, and gets no work until it does; restart the "
            "worker");
  EXPECT_EQ(
      cluster.Summary(waiting[1]).reason(),
      "waits for worker w9, which pipeline.worker_names asks for and the cluster does not have; "
      "start one of that name, or submit the job without it");
  cluster.ThawExecutor(1);
  cluster.RunFor(5'000);
  EXPECT_EQ(cluster.Summary(waiting[0]).state(), v1::JOB_STATE_SUCCEEDED);
}

// A coordinator that was restarted knows no more of the run than what the worker tells.
TEST(Stuck, WorkerHasARunThatNoJobHas_GetsNoWorkAfterAWhile) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  Coordinator& coordinator = cluster.coordinator();
  const auto tell = [&](const std::string& job_id) {
    v1::HeartbeatRequest request;
    request.set_name("w0");
    request.set_incarnation(100);
    request.set_job_id(job_id);
    request.set_epoch(7);
    EXPECT_THAT(coordinator.Heartbeat(request, cluster.now()), IsOk());
    coordinator.TakeEffects();
  };
  cluster.Freeze(0);  // the test sends its heartbeats
  for (int second = 0; second <= 30; ++second) {
    EXPECT_EQ(coordinator.ListWorkers(cluster.now()).workers(0).unusable_reason(), "") << second;
    tell("old-1");
    cluster.RunFor(1'000);
  }
  EXPECT_THAT(coordinator.ListWorkers(cluster.now()).workers(0).unusable_reason(),
              HasSubstr("does not stop its run of job old-1"));
  tell("");
  EXPECT_EQ(coordinator.ListWorkers(cluster.now()).workers(0).unusable_reason(), "");
}

// In its first steps, or while it reads data: the watch is patient, and still does not wait until no worker has come further for
// 15 minutes.
TEST(Deadline, ExecutorIsStuckWhileItsPulseIsUnsteady_IsKnownAfterTwoMinutes) {
  SimulatedCluster cluster({.workers = 3, .attached = true, .unsteady = true});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SavedJob(100, 2));
  ASSERT_TRUE(cluster.RunUntilState(job, v1::JOB_STATE_RUNNING));
  cluster.RunFor(1000);
  cluster.FreezeExecutor(1);
  cluster.RunFor(110'000);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_RUNNING) << "it may compile for so long";
  cluster.RunFor(60'000);
  const v1::GetJobResponse& saved = cluster.Saved(job);
  EXPECT_EQ(saved.summary().state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(saved.result().attempts_size(), 2);
  EXPECT_EQ(saved.result().attempts(0).cause(), v1::ATTEMPT_CAUSE_STALLED);
  EXPECT_EQ(saved.result().attempts(0).worker(), "w1");
}

}  // namespace
}  // namespace penstock
