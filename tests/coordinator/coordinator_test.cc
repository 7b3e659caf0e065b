#include "coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/rejected_messages.h"
#include "base/seen_epoch.h"
#include "base/utf8.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

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
      SubmitJob(coordinator, Request(spec), {}),
      StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("training.microbatches: is 3")));
  EXPECT_EQ(coordinator.ListJobs().jobs_size(), 0);
}

// A record that cannot be kept is left at that.
TEST(SubmitJob, OnlyChecked_LeavesNothingBehind) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  Coordinator& coordinator = cluster.coordinator();
  for (int i = 0; i < 2; ++i) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Submission submission,
        coordinator.CheckSubmission(Request(SmallJob(10, 1), "k"), cluster.now()));
    EXPECT_EQ(submission.job_id, "small-1");
    EXPECT_TRUE(submission.record.has_value());
    EXPECT_THAT(coordinator.TakeEffects(), IsEmpty());
  }
  EXPECT_EQ(coordinator.ListJobs().jobs_size(), 0);
}

TEST(SubmitJob, SameKey_IsTheSameJob) {
  Coordinator coordinator({});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto first,
                                SubmitJob(coordinator, Request(SmallJob(10, 1), "k"), {}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto again,
                                SubmitJob(coordinator, Request(SmallJob(10, 1), "k"), {}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto other,
                                SubmitJob(coordinator, Request(SmallJob(10, 1), "l"), {}));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_EQ(coordinator.ListJobs().jobs_size(), 2);
  EXPECT_EQ(coordinator.ListJobs().jobs(0).job_id(), other) << "newest first";
}

TEST(SubmitJob, Ids_HaveANumberAndDrawnLetters) {
  uint32_t drawn = 0;
  Coordinator coordinator({.draw = [&drawn] { return drawn++; }});
  StoredJob stored;
  *stored.record.mutable_spec() = SmallJob(10, 1);
  stored.record.mutable_summary()->set_job_id("small-9-kzvpt");
  stored.record.mutable_summary()->set_state(v1::JOB_STATE_SUCCEEDED);
  StoredJob earlier = stored;  // by a build that drew none
  earlier.record.mutable_summary()->set_job_id("small-11");
  coordinator.Restore({stored, earlier}, {});
  EXPECT_EQ(*SubmitJob(coordinator, Request(SmallJob(10, 1)), {}), "small-12-bbbbb");
  EXPECT_EQ(*SubmitJob(coordinator, Request(SmallJob(10, 1)), {}), "small-13-cbbbb");
}

TEST(SubmitJob, TooManyWaiting_IsRefused) {
  Coordinator coordinator({.jobs_waiting_max = 2});
  ASSERT_THAT(SubmitJob(coordinator, Request(SmallJob(10, 1)), {}), IsOk());
  ASSERT_THAT(SubmitJob(coordinator, Request(SmallJob(10, 1)), {}), IsOk());
  EXPECT_THAT(SubmitJob(coordinator, Request(SmallJob(10, 1)), {}),
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
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto job, SubmitJob(coordinator, request, cluster.now()));
  coordinator.TakeEffects();
  v1::PrepareRunResponse prepared;
  prepared.set_schedule_digest("abc");
  coordinator.OnAnswer(job,
                       CallAnswer{.epoch = coordinator.FindRun(job)->epoch(), .response = prepared},
                       cluster.now());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto summary, coordinator.FindSummary(job));
  EXPECT_EQ(summary.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(summary.error(), AllOf(StartsWith("worker w0 (stage 0): derives schedule abc"),
                                     HasSubstr("same build")));
}

TEST(Prepare, WorkerRefuses_FailsTheJobWithItsReason) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  Coordinator& coordinator = cluster.coordinator();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto job,
                                SubmitJob(coordinator, Request(SmallJob(10, 1)), cluster.now()));
  coordinator.TakeEffects();
  const absl::StatusOr<v1::PrepareRunResponse> refusal = absl::NotFoundError("a.txt: no such file");
  coordinator.OnAnswer(job,
                       CallAnswer{.epoch = coordinator.FindRun(job)->epoch(), .response = refusal},
                       cluster.now());
  EXPECT_EQ(coordinator.FindSummary(job)->error(),
            "worker w0 (stage 0): cannot prepare: a.txt: no such file");
}

TEST(Resume, NoStartFound_FailsWithTheReason) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  cluster.found_start = absl::InvalidArgumentError("checkpoint.resume: /ckpt is of another job");
  v1::JobSpec spec = SmallJob(10, 1);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_resume("latest");
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).error(),
            "cannot start: checkpoint.resume: /ckpt is of another job");
}

TEST(Resume, CheckpointAtTheEnd_SucceedsWithoutTraining) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  cluster.found_start = FoundStart{.checkpoint = "/ckpt/step-10", .step = 10};
  v1::JobSpec spec = SmallJob(10, 2);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_resume("latest");
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().checkpoint(), "/ckpt/step-10");
}

TEST(Resume, WorkerThatHoldsBeforeTheStart_EndsTheJobHardWithItsName) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  cluster.found_start = FoundStart{.checkpoint = "/ckpt/step-10", .step = 10};
  v1::JobSpec spec = SmallJob(1000, 1);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_resume("latest");
  const std::string job = cluster.Submit(spec);
  cluster.RunFor(1500);
  Coordinator& coordinator = cluster.coordinator();
  ASSERT_THAT(coordinator.CancelJob(job, cluster.now()), IsOk());
  v1::HoldRunResponse held;
  held.set_step(-3);
  const absl::StatusOr<v1::HoldRunResponse> response = held;
  coordinator.OnAnswer(job,
                       CallAnswer{.epoch = coordinator.FindRun(job)->epoch(), .response = response},
                       cluster.now());
  EXPECT_EQ(coordinator.FindSummary(job)->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(coordinator.FindSummary(job)->reason(),
              AllOf(HasSubstr("the job was stopped before it had drained, so its steps after "
                              "/ckpt/step-10 are lost: worker w0"),
                    HasSubstr("holds after step -3, before step 10")));
}

TEST(Checkpoint, OlderOnesCannotBeRemoved_IsLoggedAndNoFailure) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  cluster.commit_note = "step-4 is saved, but what is older stays: not yours";
  v1::JobSpec spec = SmallJob(4, 2);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(4);
  const std::string job = cluster.Submit(spec);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Saved(job).result().checkpoint(), "/ckpt/step-4");
  const std::vector<v1::JobEvent>& events = cluster.Events(job);
  EXPECT_TRUE(std::any_of(events.begin(), events.end(), [&](const v1::JobEvent& event) {
    return event.log() == cluster.commit_note;
  }));
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

// With two workers they fail to write, with one the commit fails.
TEST(Checkpoint, DiskFullForAWhile_IsToldOnceAndLaterCutsAreSaved) {
  for (const int workers : {1, 2}) {
    SimulatedCluster cluster({.workers = workers});
    cluster.RunFor(10);
    const std::string job = cluster.Submit(OftenSavedJob(100, workers));
    cluster.RunFor(1'000);
    cluster.disk_full = true;
    cluster.RunFor(4'000);
    const size_t before = cluster.commits().size();
    EXPECT_LE(cluster.Staged().size(), 1u) << "of the latest cut";
    cluster.disk_full = false;
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_GE(cluster.commits().size(), before + 12);
    EXPECT_EQ(cluster.commits().back().step, 100);
    EXPECT_THAT(cluster.Staged(), IsEmpty());
    EXPECT_THAT(cluster.violations(), IsEmpty());
    std::vector<std::string> told;
    for (const std::string& line : cluster.Logs(job)) {
      if (absl::StrContains(line, "saved")) told.push_back(line);
    }
    EXPECT_THAT(told, ElementsAre(HasSubstr(workers == 1 ? "disk full" : "No space left on device"),
                                  StartsWith("checkpoints are saved again, from step")));
  }
}

// A disk that hangs for a while ends its commits late, and in order.
class LateCommitTest : public ::testing::Test {
 protected:
  // A job of 100 steps of 100 ms whose commits hang, and are overdue after a second.
  LateCommitTest() {
    cluster_.RunFor(10);
    v1::JobSpec spec = OftenSavedJob(100, 1);
    spec.mutable_checkpoint()->set_every_steps(20);
    job_ = cluster_.Submit(spec);
    cluster_.RunFor(50);
    cluster_.disk_hangs = true;
  }

  static SimulatedClusterOptions Options() {
    SimulatedClusterOptions options{.workers = 1};
    options.limits.run.commit_timeout_ms = 1'000;
    return options;
  }
  void Commit(int64_t step, absl::StatusOr<CommittedCheckpoint> result) {
    cluster_.coordinator().OnAnswer(job_, CheckpointCommitted{step, std::move(result)},
                                    cluster_.now());
    cluster_.PerformEffects();
  }
  void Succeed(int64_t step) {
    Commit(step, CommittedCheckpoint{.directory = absl::StrCat("/ckpt/step-", step)});
  }
  std::vector<std::string> LogsOfSaving() {
    std::vector<std::string> told;
    for (const std::string& line : cluster_.Logs(job_)) {
      if (absl::StrContains(line, "saved")) told.push_back(line);
    }
    return told;
  }

  SimulatedCluster cluster_{Options()};
  std::string job_;
};

TEST_F(LateCommitTest, SucceedsOrFails_IsCountedOnceAndNoneIsMissingThatIsThere) {
  cluster_.RunFor(7'500);  // those of 20, 40 and 60 are overdue
  Commit(20, absl::ResourceExhaustedError("disk full"));
  Succeed(40);
  EXPECT_THAT(LogsOfSaving(), ElementsAre(StartsWith("the checkpoint of step 20 could not be")))
      << "60 is missing still";
  Succeed(60);
  EXPECT_THAT(LogsOfSaving(),
              ElementsAre(StartsWith("the checkpoint of step 20 could not be"),
                          "checkpoints are saved again, from step 60 on; 1 before could not be"));
  cluster_.disk_hangs = false;
  ASSERT_TRUE(cluster_.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster_.Summary(job_).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(LateCommitTest, SucceedsAfterTheLastHasFailed_DoesNotHideThat) {
  cluster_.RunFor(10'200);
  EXPECT_EQ(cluster_.Summary(job_).reason(), "waits until its checkpoint is committed in /ckpt");
  Commit(100, absl::ResourceExhaustedError("disk full"));
  Succeed(80);
  ASSERT_TRUE(cluster_.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster_.Summary(job_).error(),
            "training is complete, but the checkpoint of step 100 could not be saved: disk full");
  EXPECT_EQ(cluster_.Saved(job_).result().checkpoint(), "/ckpt/step-80");
}

TEST(Checkpoint, JobEndsInAnyWay_LeavesNothingStaged) {
  for (const char* end : {"failed", "killed", "cancelled", "stopped hard"}) {
    SCOPED_TRACE(end);
    SimulatedCluster cluster({.workers = 2, .save_ms = 40});
    cluster.RunFor(10);
    v1::JobSpec spec = OftenSavedJob(1000, 2);
    spec.mutable_recovery()->set_mode("off");  // each of these is its end
    const std::string job = cluster.Submit(spec);
    cluster.RunFor(1'020);  // in the middle of a cut
    cluster.disk_full = true;
    if (end == std::string("failed")) cluster.FailRun(0, "went wrong");
    if (end == std::string("killed")) cluster.Kill(1);
    if (end == std::string("stopped hard")) cluster.Freeze(1);
    if (end == std::string("cancelled")) {
      ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
      cluster.PerformEffects();
    }
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    EXPECT_THAT(cluster.Staged(), IsEmpty());
    EXPECT_THAT(cluster.violations(), IsEmpty());
  }
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

TEST(Checkpoint, DirectoryInUseUnderAnotherSpelling_MakesTheSecondJobWait) {
  for (const char* spelling : {"/data/ckpt/", "/data/./ckpt", "/data//ckpt", "/data/x/../ckpt"}) {
    SimulatedCluster cluster({.workers = 2});
    cluster.RunFor(10);
    v1::JobSpec spec = SmallJob(4, 1);
    spec.mutable_checkpoint()->set_directory("/data/ckpt");
    cluster.Submit(spec);
    spec.mutable_checkpoint()->set_directory(spelling);
    const std::string second = cluster.Submit(spec);
    EXPECT_THAT(cluster.Summary(second).reason(), HasSubstr("same checkpoint.directory"));
    spec.mutable_checkpoint()->set_directory("/data/ckpt2");
    const std::string other = cluster.Submit(spec);
    EXPECT_EQ(cluster.Summary(other).state(), v1::JOB_STATE_PREPARING);
    ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
    EXPECT_THAT(cluster.violations(), IsEmpty());
    EXPECT_THAT(cluster.LeasedDirectories(), IsEmpty());
  }
}

TEST(Checkpoint, Directory_IsTheJobsUntilItsWorkersHaveStopped) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  v1::JobSpec spec = SmallJob(1000, 2);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_recovery()->set_mode("off");
  const std::string job = cluster.Submit(spec);
  cluster.RunFor(500);
  EXPECT_EQ(cluster.LeasedDirectories().size(), 1u);
  cluster.Freeze(1);  // does not stop when it is told to
  cluster.FailRun(0, "went wrong");
  cluster.RunFor(500);
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(cluster.LeasedDirectories().size(), 1u);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_THAT(cluster.LeasedDirectories(), IsEmpty());
}

TEST(Lost, WorkerWhileTheCheckpointIsSought_FailsTheJobWithItsName) {
  SimulatedCluster cluster({.workers = 2, .delay_ms_min = 20'000, .delay_ms_max = 20'000});
  cluster.RunFor(20'010);
  v1::JobSpec spec = SmallJob(10, 2);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_recovery()->set_mode("off");
  const std::string job = cluster.Submit(spec);
  cluster.Kill(1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_THAT(cluster.Summary(job).error(), StartsWith("worker w1: was lost"));
  EXPECT_THAT(cluster.violations(), IsEmpty());
}

// It goes into records and lists, which could not be read back otherwise.
TEST(Failure, TextOfAnyBytes_IsKeptAsUtf8) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(100, 1));
  cluster.RunFor(300);
  std::string message = "\xFF";
  for (int i = 0; i < 2000; ++i) {
    message += "\u20AC";  // 3 bytes, so that some cut at a byte would go through one
  }
  cluster.FailRun(0, message);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const std::string error = cluster.Summary(job).error();
  EXPECT_EQ(FindInvalidUtf8(error), absl::string_view::npos);
  EXPECT_LE(error.size(), JobRun::kTextBytesMax);
  v1::GetJobResponse record;
  EXPECT_TRUE(record.ParseFromString(cluster.Saved(job).SerializeAsString()));
}

TEST(AllWorkers, AfterAFailedJob_AreWaitedFor) {
  SimulatedCluster cluster({.seed = 3, .workers = 4, .delay_ms_min = 1, .delay_ms_max = 60});
  cluster.RunFor(5000);
  const std::string first = cluster.Submit(SmallJob(1000, 0));
  const std::string second = cluster.Submit(SmallJob(4, 0));
  cluster.RunFor(2000);
  EXPECT_EQ(cluster.Saved(first).plan().stages_size(), 4);
  cluster.FailRun(1, "went wrong");
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(first).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(cluster.Saved(second).plan().stages_size(), 4);
}

TEST(NamedWorkers, AreTakenInTheirOrderAndWaitedFor) {
  SimulatedCluster cluster({.seed = 3, .workers = 3});
  cluster.RunFor(100);
  const auto named = [](std::initializer_list<const char*> names, int64_t steps) {
    v1::JobSpec spec = SmallJob(steps, 2);
    for (const char* const name : names) spec.mutable_pipeline()->add_worker_names(name);
    return spec;
  };
  const std::string first = cluster.Submit(named({"w2", "w0"}, 100));
  const std::string second = cluster.Submit(named({"w1", "w2"}, 2));
  // Not one that holds back others, though its first worker is busy.
  const std::string foreign = cluster.Submit(named({"w2", "w9"}, 2));
  cluster.RunFor(500);
  EXPECT_EQ(cluster.Saved(first).plan().stages(0).worker(), "w2");
  EXPECT_EQ(cluster.Saved(first).plan().stages(1).worker(), "w0");
  EXPECT_EQ(cluster.Summary(second).reason(),
            "waits for worker w2, which pipeline.worker_names asks for and which is not free");
  cluster.RunFor(100'000);
  EXPECT_EQ(cluster.Summary(first).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(cluster.Summary(second).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(
      cluster.Summary(foreign).reason(),
      "waits for worker w9, which pipeline.worker_names asks for and the cluster does not have; "
      "start one of that name, or submit the job without it");
}

v1::RegisterWorkerRequest Worker(int number, uint64_t incarnation = 1) {
  v1::RegisterWorkerRequest worker;
  worker.set_name(absl::StrCat("w", number));
  worker.set_address(absl::StrCat("host", number, ":1"));
  worker.set_incarnation(incarnation);
  worker.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  return worker;
}

// All that happens within `coordinator` at `ms`: the deadlines that come before, then the worker.
void RegisterAt(Coordinator& coordinator, int64_t ms, const v1::RegisterWorkerRequest& worker) {
  while (coordinator.NextDeadlineNs().value_or(ms * kNsPerMs) < ms * kNsPerMs) {
    const int64_t deadline_ns = std::max<int64_t>(1, *coordinator.NextDeadlineNs());
    coordinator.Tick({.monotonic_ns = deadline_ns});
  }
  ASSERT_THAT(coordinator.RegisterWorker(worker, {.monotonic_ns = ms * kNsPerMs}), IsOk());
}

TEST(AllWorkers, AfterARestartOfTheCoordinator_AreWaitedFor) {
  SimulatedCluster before({.workers = 0});
  const std::string job = before.Submit(SmallJob(4, 0));
  Coordinator after({.membership = {.heartbeat_timeout_ms = 60'000}, .settle_ms = 3000});
  after.Restore(before.Store(), {.monotonic_ns = 1});
  const int64_t times_ms[] = {200, 700, 2100, 4600};  // one comes back after the other
  for (int i = 0; i < 4; ++i) {
    RegisterAt(after, times_ms[i], Worker(i));
    EXPECT_EQ(after.FindSummary(job)->reason(), "waits for workers: more may be about to join");
  }
  after.Tick({.monotonic_ns = 7599 * kNsPerMs});
  EXPECT_TRUE(after.FindRun(job)->queued());
  EXPECT_LE(after.NextDeadlineNs(), 7600 * kNsPerMs);
  after.Tick({.monotonic_ns = 7600 * kNsPerMs});
  EXPECT_FALSE(after.FindRun(job)->queued());
  EXPECT_EQ(after.FindRun(job)->Record().plan().stages_size(), 4);
}

TEST(AllWorkers, OneThatIsRestartedAllTheTime_KeepsNoJobWaiting) {
  Coordinator coordinator({.membership = {.heartbeat_timeout_ms = 60'000}, .settle_ms = 3000});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string job,
                                SubmitJob(coordinator, Request(SmallJob(4, 0)), {}));
  RegisterAt(coordinator, 100, Worker(0));
  for (int64_t ms = 200; ms <= 3200; ms += 100) {
    RegisterAt(coordinator, ms, Worker(1, static_cast<uint64_t>(ms)));
  }
  EXPECT_FALSE(coordinator.FindRun(job)->queued());
}

// Workers remember which epochs of which job id are over; a coordinator without its records does not.
TEST(Epoch, CoordinatorThatLostItsRecords_GivesLaterOnes) {
  int64_t last_epoch = 0;
  for (int64_t unix_ms : {1'700'000'000'000, 1'700'000'000'001, 1'700'000'060'000}) {
    Coordinator coordinator({});
    ASSERT_THAT(coordinator.RegisterWorker(Worker(0), {1, unix_ms}), IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string job,
                                  SubmitJob(coordinator, Request(SmallJob(4, 1)), {2, unix_ms}));
    EXPECT_EQ(job, "small-1");
    EXPECT_GT(coordinator.FindRun(job)->epoch(), last_epoch);
    last_epoch = coordinator.FindRun(job)->epoch();
  }
}

// The epochs that workers hear of when they are asked to prepare, by effect. Each must be in the record before.
std::vector<int64_t> PreparedEpochs(const CoordinatorEffects& effects, int64_t kept = 0) {
  std::vector<int64_t> epochs;
  for (const CoordinatorEffect& effect : effects) {
    if (const auto* save = std::get_if<SaveJob>(&effect)) kept = save->record.epoch();
    const auto* const call = std::get_if<CallWorker>(&effect);
    if (call == nullptr || !std::holds_alternative<v1::PrepareRunRequest>(call->request)) continue;
    EXPECT_EQ(call->epoch, kept) << "it is not kept";
    EXPECT_EQ(std::get<v1::PrepareRunRequest>(call->request).epoch(), call->epoch);
    epochs.push_back(call->epoch);
  }
  return epochs;
}

TEST(Epoch, AfterARestart_IsAboveThoseBeforeWhateverTheClockSays) {
  constexpr int64_t kUnixMs = 1'700'000'000'000;
  SimulatedCluster before({.workers = 0});
  v1::JobSpec spec = SmallJob(1000, 1);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  StoredJob stored = {.record = before.Saved(before.Submit(spec))};
  int64_t last_epoch = 0;
  for (const int64_t unix_ms : {kUnixMs, kUnixMs - 3'600'000, int64_t{0}, kUnixMs}) {
    Coordinator coordinator({});
    coordinator.Restore({stored}, {1, unix_ms});
    ASSERT_THAT(coordinator.RegisterWorker(Worker(0), {2, unix_ms}), IsOk());
    coordinator.OnAnswer("small-1", StartFound{FoundStart()}, {3, unix_ms});
    const CoordinatorEffects effects = coordinator.TakeEffects();
    const std::vector<int64_t> epochs = PreparedEpochs(effects, last_epoch);
    ASSERT_EQ(epochs.size(), 1u);
    EXPECT_EQ(epochs[0], last_epoch == 0 ? kUnixMs : last_epoch + 1);
    last_epoch = epochs[0];
    for (const CoordinatorEffect& effect : effects) {
      if (const auto* save = std::get_if<SaveJob>(&effect)) stored.record = save->record;
    }
    EXPECT_EQ(stored.record.epoch(), last_epoch);
    stored.last_sequence += 100;
  }
}

// Terms are revisions of etcd: they grow by more than one. Clocks count for nothing, and neither do epochs of before that are
// the time.
TEST(Epoch, OfALaterLeader_IsAboveThoseOfEarlierOnes) {
  constexpr int64_t kUnixMs = 1'700'000'000'000;
  SimulatedCluster before({.workers = 0});
  v1::JobSpec spec = SmallJob(1000, 1);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  StoredJob stored = {.record = before.Saved(before.Submit(spec))};
  const auto attempt = [&](int64_t term, int64_t unix_ms) -> int64_t {
    CoordinatorLimits limits;
    limits.run.epochs_from = FirstEpochOf(term);
    Coordinator coordinator(limits);
    const int64_t kept = stored.record.epoch();
    coordinator.Restore({stored}, {1, unix_ms});
    EXPECT_THAT(coordinator.RegisterWorker(Worker(0), {2, unix_ms}), IsOk());
    coordinator.OnAnswer("small-1", StartFound{FoundStart()}, {3, unix_ms});
    const CoordinatorEffects effects = coordinator.TakeEffects();
    const std::vector<int64_t> epochs = PreparedEpochs(effects, kept);
    for (const CoordinatorEffect& effect : effects) {
      if (const auto* save = std::get_if<SaveJob>(&effect)) stored.record = save->record;
    }
    stored.last_sequence += 100;
    return epochs.size() == 1 ? epochs[0] : 0;
  };
  EXPECT_EQ(attempt(5, kUnixMs), FirstEpochOf(5));
  EXPECT_EQ(attempt(5, kUnixMs + 1), FirstEpochOf(5) + 1)
      << "the same leader, after another attempt";
  EXPECT_EQ(attempt(9, 0), FirstEpochOf(9));
  // A job that a coordinator without other coordinators began.
  stored.record.set_epoch(kUnixMs);
  EXPECT_EQ(attempt(12, 0), kUnixMs + 1);
  EXPECT_EQ(attempt(2'000'000, 0), FirstEpochOf(2'000'000));
  EXPECT_LT(FirstEpochOf(int64_t{1} << 60), kEpochMax);
}

CallAnswer Refusal(int64_t epoch, int32_t worker, int64_t seen) {
  const absl::StatusOr<v1::PrepareRunResponse> refused =
      WithSeenEpoch(absl::AbortedError("over on this worker"), seen);
  return {.epoch = epoch, .worker_index = worker, .response = refused};
}

TEST(Epoch, WorkersHaveSeenLaterOnes_AreAllPreparedAgainAboveThem) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  Coordinator& coordinator = cluster.coordinator();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto job,
                                SubmitJob(coordinator, Request(SmallJob(10, 2)), cluster.now()));
  const int64_t first = coordinator.FindRun(job)->epoch();
  EXPECT_THAT(PreparedEpochs(coordinator.TakeEffects()), ElementsAre(first, first));
  coordinator.OnAnswer(job, Refusal(first, 0, first + 7), cluster.now());
  EXPECT_EQ(coordinator.FindSummary(job)->state(), v1::JOB_STATE_PREPARING);
  EXPECT_THAT(PreparedEpochs(coordinator.TakeEffects(), first), ElementsAre(first + 8, first + 8));
  coordinator.OnAnswer(job, Refusal(first, 1, first + 9), cluster.now());
  EXPECT_THAT(coordinator.TakeEffects(), IsEmpty()) << "of the attempt before";
  coordinator.OnAnswer(job, Refusal(first + 8, 1, first + 8), cluster.now());
  EXPECT_THAT(PreparedEpochs(coordinator.TakeEffects(), first), ElementsAre(first + 9, first + 9));
  // Both have said what they know, so another coordinator is at work on the same job.
  coordinator.OnAnswer(job, Refusal(first + 9, 0, first + 20), cluster.now());
  EXPECT_THAT(coordinator.FindSummary(job)->error(),
              "worker w0 (stage 0): cannot prepare: over on this worker");
}

TEST(Epoch, SeenOneThatCannotBe_FailsTheJob) {
  for (const int64_t offset : {int64_t{-1}, kEpochMax}) {
    SimulatedCluster cluster({.workers = 1});
    cluster.RunFor(10);
    Coordinator& coordinator = cluster.coordinator();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto job,
                                  SubmitJob(coordinator, Request(SmallJob(10, 1)), cluster.now()));
    const int64_t epoch = coordinator.FindRun(job)->epoch();
    coordinator.OnAnswer(job, Refusal(epoch, 0, epoch + offset), cluster.now());
    EXPECT_EQ(coordinator.FindSummary(job)->state(), v1::JOB_STATE_FAILED);
  }
}

TEST(Stall, NoProgressAnywhere_FailsTheJob) {
  SimulatedClusterOptions options{.workers = 1, .step_ms = 10'000'000};
  options.limits.run.stall_timeout_ms = 60'000;
  SimulatedCluster cluster(options);
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(4, 1));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).error(), "no worker made any progress for 60 s");
}

TEST(Timeline, OfEveryJobThatTrained_IsKept) {
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string done = cluster.Submit(SmallJob(3, 2));
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const std::string failed = cluster.Submit(SmallJob(1000, 2));
  cluster.RunFor(1000);
  cluster.FailRun(1, "went wrong");
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  const std::string never_trained = cluster.Submit(SmallJob(1000, 3));
  ASSERT_THAT(cluster.coordinator().CancelJob(never_trained, cluster.now()), IsOk());
  EXPECT_THAT(cluster.gathered(), ::testing::ElementsAre(done, failed));
}

TEST(Drain, RunningJob_IsCutAndWaitingOnesStay) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  const std::string running = cluster.Submit(SmallJob(1000, 1));
  const std::string waiting = cluster.Submit(SmallJob(10, 1));
  cluster.RunFor(1000);
  cluster.coordinator().Drain(cluster.now());
  cluster.PerformEffects();
  EXPECT_THAT(SubmitJob(cluster.coordinator(), Request(SmallJob(1, 1)), cluster.now()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stopping")));
  cluster.RunFor(5000);
  EXPECT_TRUE(cluster.coordinator().Drained());
  EXPECT_EQ(cluster.Summary(running).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(cluster.Summary(running).reason(), "the coordinator was stopped");
  EXPECT_GT(cluster.Saved(running).result().steps(), 0);
  EXPECT_EQ(cluster.Summary(waiting).state(), v1::JOB_STATE_QUEUED);
}

TEST(Drain, WorkersDoNotAnswer_EndsHardAfterTheTimeout) {
  SimulatedClusterOptions options{.workers = 1, .step_ms = 500'000};
  options.limits.run.drain_timeout_ms = 10'000;
  SimulatedCluster cluster(options);
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(10, 1));
  cluster.RunFor(1000);
  ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
  cluster.PerformEffects();
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(cluster.Summary(job).reason(),
              HasSubstr("nothing of it is saved: the workers did not drain within 10 s"));
  EXPECT_THAT(cluster.StillTraining(), IsEmpty());
}

// What was asked for has come about; the reason says at what cost.
TEST(Drain, WorkerOfACancelledJobDies_EndsHardAsCancelled) {
  SimulatedCluster cluster({.workers = 2, .step_ms = 5000});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(10, 2));
  cluster.RunFor(12'000);
  ASSERT_THAT(cluster.coordinator().CancelJob(job, cluster.now()), IsOk());
  cluster.PerformEffects();
  cluster.Kill(1);
  ASSERT_TRUE(cluster.RunUntilOver(kLimitMs));
  EXPECT_EQ(cluster.Summary(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(
      cluster.Summary(job).reason(),
      AllOf(HasSubstr("cancelled by the user; the job was stopped before it had drained, so "
                      "nothing of it is saved: worker w1"),
            HasSubstr("lost")));
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
  store[1].record.clear_run();  // by a build that did not say how to go on with it
  // As a build has stored it that did not know these keys yet.
  v1::TrainingSpec& training = *store[2].record.mutable_spec()->mutable_training();
  training.clear_rounding();
  training.clear_stash();
  training.clear_deterministic();
  training.clear_cuda_graphs();
  after.Restore(store, before.now());
  EXPECT_EQ(after.FindSummary(done)->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(after.FindSummary(running)->state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(after.FindSummary(running)->error(), HasSubstr("coordinator was restarted"));
  EXPECT_EQ(after.FindSummary(waiting)->state(), v1::JOB_STATE_QUEUED);
  const v1::TrainingSpec& filled = after.FindRun(waiting)->spec().training();
  EXPECT_EQ(filled.rounding(), "nearest");
  EXPECT_EQ(filled.stash(), "device");
  EXPECT_TRUE(filled.deterministic());
  EXPECT_EQ(filled.cuda_graphs(), "off");
  EXPECT_EQ(after.ListJobs().jobs_size(), 3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto again,
      SubmitJob(after, Request(SmallJob(2, 1), "key of the first"), before.now()));
  EXPECT_EQ(again, done);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto next, SubmitJob(after, Request(SmallJob(2, 1)), {}));
  EXPECT_EQ(next, "small-4") << "ids are never given twice";

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
  EXPECT_EQ(after.rejected().count(Rejection::kStaleEpoch), 1);
  bool stopped = false, prepared = false;
  for (const CoordinatorEffect& effect : after.TakeEffects()) {
    if (const auto* call = std::get_if<CallWorker>(&effect)) {
      stopped |=
          call->job_id == running && std::holds_alternative<v1::StopRunRequest>(call->request);
      prepared |=
          call->job_id == waiting && std::holds_alternative<v1::PrepareRunRequest>(call->request);
    }
  }
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(prepared);
}

TEST(JobIds, CountForEachName_AndComeOnceAlsoAfterARestart) {
  Coordinator coordinator({});
  // As an earlier process numbered them: through all names.
  std::vector<StoredJob> store(3);
  for (size_t i = 0; i < store.size(); ++i) {
    v1::JobSummary& summary = *store[i].record.mutable_summary();
    summary.set_job_id(std::array{"small-9", "other-10", "small-2"}[i]);
    summary.set_state(v1::JOB_STATE_SUCCEEDED);
  }
  coordinator.Restore(store, {});
  std::vector<std::string> ids;
  for (const char* name : {"small", "other", "new", "small", "small-11", "new"}) {
    v1::JobSpec spec = SmallJob(2, 1);
    spec.set_name(name);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(ids.emplace_back(), SubmitJob(coordinator, Request(spec), {}));
  }
  EXPECT_THAT(ids, ElementsAre("small-10", "other-11", "new-1", "small-11", "small-11-1", "new-2"));
}

TEST(ReportRun, OtherEpochWorkerOrIncarnation_IsAborted) {
  SimulatedCluster cluster({.workers = 1});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(SmallJob(1000, 1));
  cluster.RunFor(100);
  const v1::ReportRunRequest good = cluster.ReportOf(job, 0);
  EXPECT_THAT(cluster.coordinator().ReportRun(good, cluster.now()), IsOk());
  v1::ReportRunRequest epoch = good, worker = good, incarnation = good, unknown = good;
  epoch.set_epoch(good.epoch() + 1);
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
