#include "coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int64_t kLimitMs = 600'000;

v1::SubmitJobRequest Request(const v1::JobSpec& spec, const std::string& key = "") {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_idempotency_key(key);
  return request;
}

TEST(SubmitJob, InvalidJob_IsRefusedNamingTheKey) {
  Coordinator coordinator({});
  v1::JobSpec spec = SmallJob(10, 1);
  spec.mutable_training()->set_microbatches(3);
  EXPECT_THAT(
      coordinator.SubmitJob(Request(spec), {}),
      StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("training.microbatches: is 3")));
  EXPECT_EQ(coordinator.ListJobs().jobs_size(), 0);
}

TEST(SubmitJob, SameKey_IsTheSameJob) {
  Coordinator coordinator({});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto first,
                                coordinator.SubmitJob(Request(SmallJob(10, 1), "k"), {}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto again,
                                coordinator.SubmitJob(Request(SmallJob(10, 1), "k"), {}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto other,
                                coordinator.SubmitJob(Request(SmallJob(10, 1), "l"), {}));
  EXPECT_EQ(first.job_id(), again.job_id());
  EXPECT_NE(first.job_id(), other.job_id());
  EXPECT_EQ(coordinator.ListJobs().jobs_size(), 2);
  EXPECT_EQ(coordinator.ListJobs().jobs(0).job_id(), other.job_id()) << "newest first";
}

TEST(SubmitJob, TooManyWaiting_IsRefused) {
  Coordinator coordinator({.jobs_waiting_max = 2});
  ASSERT_THAT(coordinator.SubmitJob(Request(SmallJob(10, 1)), {}), IsOk());
  ASSERT_THAT(coordinator.SubmitJob(Request(SmallJob(10, 1)), {}), IsOk());
  EXPECT_THAT(coordinator.SubmitJob(Request(SmallJob(10, 1)), {}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2 jobs wait")));
}

TEST(CancelJob, UnknownJob_IsNotFound) {
  Coordinator coordinator({});
  EXPECT_THAT(coordinator.CancelJob("nope", {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"nope\"")));
}

TEST(CancelJob, WaitingJob_EndsAtOnceAndAgainChangesNothing) {
  SimulatedCluster cluster({.workers = 0});
  const std::string job = cluster.Submit(SmallJob(10, 1));
  for (int i = 0; i < 2; ++i) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto response,
                                  cluster.coordinator().CancelJob(job, cluster.now()));
    EXPECT_EQ(response.state(), v1::JOB_STATE_CANCELLED);
  }
  EXPECT_EQ(cluster.coordinator().FindRun(job), nullptr);
}

TEST(CancelJob, AtEveryMoment_EndsTheJobAndFreesItsWorkers) {
  for (int64_t at_ms = 0; at_ms < 1200; at_ms += 7) {
    SimulatedCluster cluster({.workers = 2, .delay_ms_min = 5, .delay_ms_max = 5});
    v1::JobSpec spec = SmallJob(8, 2);
    spec.mutable_checkpoint()->set_directory("/ckpt");
    const std::string job = cluster.Submit(spec);
    cluster.At(at_ms, [&] {
      ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
      cluster.PerformEffects();
    });
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs)) << at_ms;
    cluster.RunFor(1000);
    const v1::JobState state = cluster.Summary(job).state();
    EXPECT_TRUE(state == v1::JOB_STATE_CANCELLED || state == v1::JOB_STATE_SUCCEEDED)
        << at_ms << " ms: " << cluster.Summary(job).DebugString();
    EXPECT_THAT(cluster.StillTraining(), IsEmpty()) << at_ms;
    EXPECT_THAT(cluster.violations(), IsEmpty()) << at_ms;
    const v1::ListWorkersResponse workers = cluster.coordinator().ListWorkers(cluster.now());
    for (const v1::WorkerSummary& worker : workers.workers()) {
      EXPECT_EQ(worker.job_id(), "") << at_ms;
    }
  }
}

TEST(Prepare, DigestDiffers_FailsTheJobNamingBoth) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  v1::SubmitJobRequest request = Request(SmallJob(10, 1));
  Coordinator& coordinator = cluster.coordinator();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto job, coordinator.SubmitJob(request, cluster.now()));
  coordinator.TakeEffects();
  coordinator.OnAnswer({.job_id = job.job_id(), .epoch = 1, .schedule_digest = "abc"},
                       cluster.now());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto summary, coordinator.FindSummary(job.job_id()));
  EXPECT_EQ(summary.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(summary.error(), AllOf(StartsWith("worker w0 (stage 0): derives schedule abc"),
                                     HasSubstr("same build")));
}

TEST(Prepare, WorkerRefuses_FailsTheJobWithItsReason) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  Coordinator& coordinator = cluster.coordinator();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto job,
                                coordinator.SubmitJob(Request(SmallJob(10, 1)), cluster.now()));
  coordinator.TakeEffects();
  coordinator.OnAnswer(
      {.job_id = job.job_id(), .epoch = 1, .status = absl::NotFoundError("a.txt: no such file")},
      cluster.now());
  EXPECT_EQ(coordinator.FindSummary(job.job_id())->error(),
            "worker w0 (stage 0): cannot prepare: a.txt: no such file");
}

TEST(Resume, CheckpointBeyondTheEnd_FailsWithBothSteps) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  cluster.found_start = FoundStart{"/ckpt/step-500", 500, {}, {}};
  v1::JobSpec spec = SmallJob(10, 1);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_resume("latest");
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_THAT(cluster.Summary(job).error(), AllOf(HasSubstr("step 500"), HasSubstr("(10)")));
}

TEST(Resume, CheckpointAtTheEnd_SucceedsWithoutTraining) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  cluster.found_start = FoundStart{"/ckpt/step-10", 10, {}, {}};
  v1::JobSpec spec = SmallJob(10, 2);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_resume("latest");
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().checkpoint(), "/ckpt/step-10");
}

TEST(Checkpoint, LastOneCannotBeSaved_FailsTheJobAndSaysThatTrainingIsComplete) {
  SimulatedCluster cluster({.workers = 2, .commit_failure_percent = 100});
  cluster.RunFor(10);
  v1::JobSpec spec = SmallJob(4, 2);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(2);
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).error(),
            "training is complete, but the checkpoint of step 4 could not be saved: disk full");
}

TEST(Checkpoint, DirectoryInUse_MakesTheSecondJobWait) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  v1::JobSpec spec = SmallJob(4, 1);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  const std::string first = cluster.Submit(spec);
  const std::string second = cluster.Submit(spec);
  EXPECT_EQ(cluster.Summary(second).reason(),
            absl::StrCat("waits for job ", first, ", which uses the same checkpoint.directory"));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(second).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(Stall, NoProgressAnywhere_FailsTheJob) {
  SimulationOptions options{.workers = 1, .step_ms = 10'000'000};
  options.limits.run.stall_timeout_ms = 60'000;
  SimulatedCluster cluster(options);
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(4, 1));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).error(), "no worker made any progress for 60 s");
}

TEST(Drain, RunningJob_IsCutAndWaitingOnesStay) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  const std::string running = cluster.Submit(SmallJob(1000, 1));
  const std::string waiting = cluster.Submit(SmallJob(10, 1));
  cluster.RunFor(1000);
  cluster.coordinator().Drain(cluster.now());
  cluster.PerformEffects();
  EXPECT_THAT(cluster.coordinator().SubmitJob(Request(SmallJob(1, 1)), cluster.now()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stopping")));
  cluster.RunFor(5000);
  EXPECT_TRUE(cluster.coordinator().Drained());
  EXPECT_EQ(cluster.Summary(running).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(cluster.Summary(running).reason(), "the coordinator was stopped");
  EXPECT_GT(cluster.Saved(running).result().steps(), 0);
  EXPECT_EQ(cluster.Summary(waiting).state(), v1::JOB_STATE_QUEUED);
}

TEST(Drain, WorkersDoNotAnswer_EndsHardAfterTheTimeout) {
  SimulationOptions options{.workers = 1, .step_ms = 500'000};
  options.limits.run.drain_timeout_ms = 10'000;
  SimulatedCluster cluster(options);
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(10, 1));
  cluster.RunFor(1000);
  ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
  cluster.PerformEffects();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(cluster.Summary(job).reason(), HasSubstr("stopped hard"));
  EXPECT_THAT(cluster.StillTraining(), IsEmpty());
}

TEST(Restore, RunningJobHasFailedAndWaitingOneRuns) {
  SimulatedCluster before({.workers = 1});
  before.RunFor(10);
  const std::string done = before.Submit(SmallJob(2, 1));
  ASSERT_TRUE(before.RunUntilOver(kLimitMs));
  const std::string running = before.Submit(SmallJob(1000, 1));
  const std::string waiting = before.Submit(SmallJob(3, 1));
  before.RunFor(1000);

  Coordinator after({});
  std::vector<StoredJob> store = before.Store();
  store[0].idempotency_key = "key of the first";
  after.Restore(store, before.now());
  EXPECT_EQ(after.FindSummary(done)->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(after.FindSummary(running)->state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(after.FindSummary(running)->error(), HasSubstr("coordinator was restarted"));
  EXPECT_EQ(after.FindSummary(waiting)->state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(after.ListJobs().jobs_size(), 3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto again, after.SubmitJob(Request(SmallJob(2, 1), "key of the first"), before.now()));
  EXPECT_EQ(again.job_id(), done);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto next, after.SubmitJob(Request(SmallJob(2, 1)), {}));
  EXPECT_EQ(next.job_id(), "small-4") << "ids are never given twice";

  // The worker comes back still training the job that has failed: it is told to stop, and gets the
  // one that waits.
  after.TakeEffects();
  v1::RegisterWorkerRequest worker;
  worker.set_name("w0");
  worker.set_address("host:1");
  worker.set_incarnation(100);
  worker.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  ASSERT_THAT(after.RegisterWorker(worker, before.now()), IsOk());
  v1::HeartbeatRequest heartbeat;
  heartbeat.set_name("w0");
  heartbeat.set_incarnation(100);
  heartbeat.set_job_id(running);
  heartbeat.set_epoch(1);
  ASSERT_THAT(after.Heartbeat(heartbeat, before.now()), IsOk());
  bool stopped = false, prepared = false;
  for (const CoordinatorEffect& effect : after.TakeEffects()) {
    if (const auto* call = std::get_if<CallWorker>(&effect)) {
      stopped |= call->job_id == running && call->request.index() == 4;
      prepared |= call->job_id == waiting && call->request.index() == 0;
    }
  }
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(prepared);
}

TEST(ReportRun, OtherEpochWorkerOrIncarnation_IsAborted) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(1000, 1));
  cluster.RunFor(100);
  v1::ReportRunRequest good;
  good.set_worker("w0");
  good.set_incarnation(100);
  good.set_job_id(job);
  good.set_epoch(1);
  EXPECT_THAT(cluster.coordinator().ReportRun(good, cluster.now()), IsOk());
  v1::ReportRunRequest epoch = good, worker = good, incarnation = good, unknown = good;
  epoch.set_epoch(2);
  worker.set_worker("w1");
  incarnation.set_incarnation(99);
  unknown.set_job_id("other");
  for (const v1::ReportRunRequest& bad : {epoch, worker, incarnation, unknown}) {
    EXPECT_THAT(cluster.coordinator().ReportRun(bad, cluster.now()),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("is over")));
  }
}

}  // namespace
}  // namespace penstock
