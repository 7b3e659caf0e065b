// What a CoordinatorServer keeps, and what it does when it cannot.
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <optional>
#include <utility>

#include "services/coordinator/event_loop.h"
#include "services/coordinator/sqlite.h"
#include "tests/services/coordinator/coordinator_fixture.h"
#include "tests/support/full_disk.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST_F(CoordinatorServerTest, Restart_ListsAllJobsAndGoesOnWithThoseThatWaited) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const std::string done = Submit(TestJob(3, 1), "key");
  AwaitState(done, v1::JOB_STATE_SUCCEEDED);
  const std::string running = Submit(TestJob(100'000, 1));
  AwaitState(running, v1::JOB_STATE_RUNNING);
  const std::string waiting = Submit(TestJob(3, 1));
  const HostPort address = address_;
  server_.reset();
  ASSERT_THAT(StartServer(address), IsOk());

  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ListJobsResponse jobs,
                                CallJobs(&v1::JobService::Stub::ListJobs, v1::ListJobsRequest()));
  ASSERT_EQ(jobs.jobs_size(), 3);
  EXPECT_EQ(jobs.jobs(0).job_id(), waiting) << "newest first";
  const v1::GetJobResponse failed = AwaitState(running, v1::JOB_STATE_FAILED);
  EXPECT_THAT(failed.summary().error(), HasSubstr("coordinator was restarted"));
  EXPECT_EQ(Submit(TestJob(3, 1), "key"), done) << "the same key is the same job";
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto events, Watch(done));
  EXPECT_EQ(events.back().state_changed().state(), v1::JOB_STATE_SUCCEEDED);
  // The worker registers again by itself, is told to stop the job that failed, and gets the other.
  AwaitState(waiting, v1::JOB_STATE_SUCCEEDED);
}

// Workers and checkpoint directories still know the jobs that the file had.
TEST_F(CoordinatorServerTest, StateFileIsLost_NoIdIsGivenAgain) {
  uint32_t drawn = 0;
  draw_ = [&drawn] { return drawn += 1'000'003; };
  ASSERT_THAT(StartServer(), IsOk());
  const std::string before = Submit(TestJob(3, 1));
  EXPECT_THAT(before, MatchesRegex("test-1-[a-z]{5}"));
  server_.reset();
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    std::filesystem::remove_all(file.path());
  }
  ASSERT_THAT(StartServer(), IsOk());
  const std::string after = Submit(TestJob(3, 1));
  EXPECT_THAT(after, MatchesRegex("test-1-[a-z]{5}"));
  EXPECT_NE(after, before);
  EXPECT_THAT(Submit(TestJob(3, 1)), StartsWith("test-2-"));
}

TEST_F(CoordinatorServerTest, LayerTimes_SurviveARestartAndADamagedRowIsMeasuredAgain) {
  Mutex mutex;
  std::string logged;
  log_ = [&](const std::string& line) {
    MutexLock lock(mutex);
    absl::StrAppend(&logged, line, "\n");
  };
  ASSERT_THAT(StartServer(), IsOk());
  ActingWorker& worker = AddWorker();
  EXPECT_FALSE(Profile().devices(0).cached());
  const HostPort address = address_;
  server_.reset();
  ASSERT_THAT(StartServer(address), IsOk());
  EXPECT_TRUE(Profile().devices(0).cached());
  EXPECT_EQ(worker.timings(), 1);

  server_.reset();
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(SqliteDatabase state,
                                  SqliteDatabase::Open(directory_ / "state.sqlite"));
    ASSERT_THAT(state.Execute("UPDATE layer_times SET times = x'00'"), IsOk());
  }
  ASSERT_THAT(StartServer(address), IsOk());
  EXPECT_FALSE(Profile().devices(0).cached());
  EXPECT_TRUE(Profile().devices(0).cached());
  EXPECT_EQ(worker.timings(), 2);
  server_.reset();  // nobody logs any more
  EXPECT_THAT(logged, HasSubstr("layers are timed again"));
}

TEST_F(CoordinatorServerTest, AddressTaken_IsRefusedAndLeavesNoStateFile) {
  ASSERT_THAT(StartServer(), IsOk());
  const std::string other = directory_ / "other.sqlite";
  EXPECT_THAT(
      CoordinatorServer::Start({.listen = address_, .state_file = other}, RealClock(), RealFiles())
          .status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(address_.ToString())));
  EXPECT_FALSE(std::filesystem::exists(other));
}

TEST_F(CoordinatorServerTest, StateFileInUse_IsRefused) {
  ASSERT_THAT(StartServer(), IsOk());
  EXPECT_THAT(CoordinatorServer::Start({.state_file = directory_ / "state.sqlite"}, RealClock(),
                                       RealFiles())
                  .status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another coordinator")));
}

TEST_F(CoordinatorServerTest, AuditLogCannotBeWritten_NothingIsDone) {
  audit_file_ = "/dev/full";
  ASSERT_THAT(StartServer(), IsOk());
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TestJob(5, 1);
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::SubmitJob, request),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("audit log")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(v1::ListJobsResponse jobs,
                                CallJobs(&v1::JobService::Stub::ListJobs, v1::ListJobsRequest()));
  EXPECT_EQ(jobs.jobs_size(), 0);
}

TEST_F(CoordinatorServerTest, AuditDiskThatIsSlow_DelaysItsCallersTogetherAndNoWorker) {
  constexpr int kClients = 64;
  audit_file_ = directory_ / "audit.jsonl";
  std::atomic<int> syncs = 0;
  sync_audit_ = [&](int file) {
    ++syncs;
    absl::SleepFor(absl::Milliseconds(200));
    return fsync(file);
  };
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const std::string running = Submit(TestJob(100'000, 1));
  AwaitState(running, v1::JOB_STATE_RUNNING);
  syncs = 0;
  EXPECT_THAT(CancelUnknownJob(kClients),
              Each(StatusIs(absl::StatusCode::kNotFound, HasSubstr("unknown"))));
  EXPECT_LT(syncs, kClients / 2) << "of " << 2 * kClients << " lines";
  EXPECT_EQ(GetJob(running)->summary().state(), v1::JOB_STATE_RUNNING);
  server_.reset();  // nobody syncs any more
}

TEST_F(CoordinatorServerTest, AuditDiskThatHangs_FailsAuditedCallsAndNothingElse) {
  audit_file_ = directory_ / "audit.jsonl";
  std::atomic<bool> hanging = false;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  sync_audit_ = [&hanging, open](int file) {
    if (hanging) open.wait();
    return fsync(file);
  };
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const std::string running = Submit(TestJob(100'000, 1));
  AwaitState(running, v1::JOB_STATE_RUNNING);
  hanging = true;
  std::promise<void> answered;
  std::vector<absl::Status> refused;
  std::thread clients([&] {
    refused = CancelUnknownJob(16);
    answered.set_value();
  });
  const std::future<void> done = answered.get_future();
  // Longer than a worker may be silent.
  while (done.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    EXPECT_EQ(GetJob(running)->summary().state(), v1::JOB_STATE_RUNNING);
  }
  clients.join();
  EXPECT_THAT(refused, Each(StatusIs(absl::StatusCode::kUnavailable,
                                     AllOf(HasSubstr("not done"), HasSubstr("audit.jsonl"),
                                           HasSubstr("look at that disk")))));
  gate.set_value();
  server_.reset();  // nobody syncs any more
}

// The disk of the state file is full while this lives.
class FullStateDisk {
 public:
  // The next request is not refused for what was asked before.
  ~FullStateDisk() {
    full_.reset();
    absl::SleepFor(EventLoop::kKeepRetryInterval);
  }

 private:
  std::optional<FullDisk> full_{std::in_place};
};

TEST_F(CoordinatorServerTest, StateFileCannotGrow_RefusesJobsUntilItCan) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const std::string running = Submit(TestJob(100'000, 1));
  AwaitStep(running, 1);
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TestJob(5, 1);
  request.set_idempotency_key("k");
  absl::Status refused;
  int64_t step = 0;
  int64_t later = 0;
  {
    const FullStateDisk full;
    refused = CallJobs(&v1::JobService::Stub::SubmitJob, request).status();
    step = GetJob(running)->summary().step();
    AwaitStep(running, step + 10);
    later = GetJob(running)->summary().step();
  }

  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot write its state file")));
  EXPECT_GE(later, step + 10) << "training goes on";
  PENSTOCK_ASSERT_OK_AND_ASSIGN(v1::ListJobsResponse jobs,
                                CallJobs(&v1::JobService::Stub::ListJobs, v1::ListJobsRequest()));
  EXPECT_EQ(jobs.jobs_size(), 1) << "what was refused is not there: " << jobs.DebugString();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto taken,
                                CallJobs(&v1::JobService::Stub::SubmitJob, request));
  v1::CancelJobRequest cancel;
  cancel.set_job_id(running);
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::CancelJob, cancel), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<v1::JobEvent> events, Watch(running));
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].sequence(), static_cast<int64_t>(i) + 1) << "no event was lost";
  }
  AwaitState(taken.job_id(), v1::JOB_STATE_SUCCEEDED);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(jobs,
                                CallJobs(&v1::JobService::Stub::ListJobs, v1::ListJobsRequest()));
  EXPECT_EQ(jobs.jobs_size(), 2);
}

// A worker that hears of an epoch that is not kept might hear of it again from the next process, for another attempt.
TEST_F(CoordinatorServerTest, StateFileCannotGrow_NoAttemptIsPreparedUntilItCan) {
  ASSERT_THAT(StartServer(), IsOk());
  const std::string job = Submit(TestJob(5, 1));
  ActingWorker* worker = nullptr;
  int early = 0;
  std::string reason;
  {
    const FullStateDisk full;
    worker = &AddWorker({.name = "w0"});
    AwaitState(job, v1::JOB_STATE_PREPARING);
    absl::SleepFor(absl::Milliseconds(300));
    early = worker->prepares();
    reason = GetJob(job)->summary().reason();
  }
  EXPECT_EQ(early, 0);
  EXPECT_EQ(reason, "waits until the coordinator can write its state");
  AwaitState(job, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(worker->prepares(), 1);
  EXPECT_EQ(GetJob(job)->epoch(), worker->epoch());
}

TEST_F(CoordinatorServerTest, StateFileCannotGrow_CancellationsAreRefusedAndNothingIsDone) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const std::string running = Submit(TestJob(100'000, 1));
  const std::string waiting = Submit(TestJob(5, 1));
  AwaitStep(running, 1);
  v1::CancelJobRequest cancel;
  std::vector<absl::Status> refused;
  v1::JobState state_of_running = v1::JOB_STATE_UNSPECIFIED;
  v1::JobState state_of_waiting = v1::JOB_STATE_UNSPECIFIED;
  absl::StatusOr<CoordinatorSnapshot> full_snapshot = absl::UnknownError("");
  {
    const FullStateDisk full;
    for (const std::string& job_id : {running, waiting}) {
      cancel.set_job_id(job_id);
      refused.push_back(CallJobs(&v1::JobService::Stub::CancelJob, cancel).status());
    }
    AwaitStep(running, GetJob(running)->summary().step() + 10);
    state_of_running = GetJob(running)->summary().state();
    state_of_waiting = GetJob(waiting)->summary().state();
    full_snapshot = server_->Snapshot();
  }
  for (const absl::Status& status : refused) {
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("not done"), HasSubstr("cannot write its state file"),
                               HasSubstr("state.sqlite"), HasSubstr("make room"))));
  }
  EXPECT_EQ(state_of_running, v1::JOB_STATE_RUNNING) << "no worker was told to drain";
  EXPECT_EQ(state_of_waiting, v1::JOB_STATE_QUEUED);
  ASSERT_THAT(full_snapshot, IsOk());
  EXPECT_FALSE(full_snapshot->state.writable);
  EXPECT_GT(full_snapshot->state.failed_writes, 0);

  for (const std::string& job_id : {waiting, running}) {
    cancel.set_job_id(job_id);
    EXPECT_THAT(CallJobs(&v1::JobService::Stub::CancelJob, cancel), IsOk());
    AwaitState(job_id, v1::JOB_STATE_CANCELLED);
  }
  EXPECT_TRUE(server_->Snapshot()->state.writable);
  server_.reset();
  ASSERT_THAT(StartServer(), IsOk());
  for (const std::string& job_id : {waiting, running}) {
    EXPECT_EQ(GetJob(job_id)->summary().state(), v1::JOB_STATE_CANCELLED);
  }
}

// Many of them do not hold up the workers' calls, which are for the same thread.
TEST_F(CoordinatorServerTest, StateFileCannotGrow_RefusalsTryTheDiskSeldom) {
  ASSERT_THAT(StartServer(), IsOk());
  const std::string waiting = Submit(TestJob(5, 1));
  v1::CancelJobRequest cancel;
  cancel.set_job_id(waiting);
  std::vector<absl::Status> refused;
  absl::StatusOr<CoordinatorSnapshot> snapshot = absl::UnknownError("");
  const absl::Time began = absl::Now();
  {
    const FullStateDisk full;
    for (int i = 0; i < 100; ++i) {
      refused.push_back(CallJobs(&v1::JobService::Stub::CancelJob, cancel).status());
    }
    snapshot = server_->Snapshot();
  }
  EXPECT_THAT(refused, Each(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("state.sqlite"))));
  ASSERT_THAT(snapshot, IsOk());
  const auto intervals =
      static_cast<int64_t>((absl::Now() - began) / EventLoop::kKeepRetryInterval);
  // Besides, the loop itself tries every second.
  EXPECT_LE(snapshot->state.failed_writes, 1 + intervals + intervals / 10);
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::CancelJob, cancel), IsOk());
}

// What a restart would undo is not answered as if it lasted.
TEST_F(CoordinatorServerTest, StateFileCannotGrow_AnEndThatIsNotKeptIsNoAnswerToACancellation) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const std::string job_id = Submit(TestJob(100'000, 1));
  AwaitStep(job_id, 1);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(job_id);
  absl::Status refused;
  {
    const FullStateDisk full;
    workers_.clear();  // the worker is lost, so the job fails
    AwaitState(job_id, v1::JOB_STATE_FAILED);
    refused = CallJobs(&v1::JobService::Stub::CancelJob, cancel).status();
  }
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("state.sqlite")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::CancelJobResponse answer,
                                CallJobs(&v1::JobService::Stub::CancelJob, cancel));
  EXPECT_EQ(answer.state(), v1::JOB_STATE_FAILED);
}

TEST_F(CoordinatorServerTest, DrainWhileTheStateFileCannotGrow_WaitsUntilAllIsKept) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const std::string job_id = Submit(TestJob(100'000, 1));
  AwaitStep(job_id, 1);
  absl::Status drained;
  {
    const FullStateDisk full;
    drained = server_->Drain(absl::Seconds(3));
  }
  EXPECT_THAT(drained, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                AllOf(HasSubstr("not kept yet"), HasSubstr("state.sqlite"))));
  EXPECT_THAT(server_->Drain(kTimeout), IsOk());
  server_.reset();
  ASSERT_THAT(StartServer(), IsOk());
  EXPECT_EQ(GetJob(job_id)->summary().state(), v1::JOB_STATE_CANCELLED);
}

// The file says so at once, and is refused at the start.
TEST_F(CoordinatorServerTest, DamagedStateFile_IsRefusedUntilTheDamageIsDropped) {
  ASSERT_THAT(StartServer(), IsOk());
  const std::string kept = Submit(TestJob(3, 1));
  const std::string damaged = Submit(TestJob(3, 1));
  server_.reset();
  {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(SqliteDatabase state,
                                  SqliteDatabase::Open(directory_ / "state.sqlite"));
    ASSERT_THAT(state.Execute("UPDATE jobs SET record = x'00' WHERE number = 2"), IsOk());
  }
  EXPECT_THAT(StartServer(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("state.sqlite"), HasSubstr(absl::StrCat("job ", damaged)),
                             HasSubstr("restore a backup"), HasSubstr("--drop-damaged"))));
  std::vector<std::string> logged;
  log_ = [&](const std::string& line) { logged.push_back(line); };
  drop_damaged_ = true;
  ASSERT_THAT(StartServer(), IsOk());
  EXPECT_THAT(GetJob(kept), IsOk());
  EXPECT_THAT(GetJob(damaged).status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(damaged)));
  server_.reset();  // nobody logs any more
  EXPECT_THAT(logged, Contains(AllOf(StartsWith("dropped as damaged: "), HasSubstr(damaged))));
}

// A job is refused at its submission if names tell that it cannot start; it leaves no job.
TEST_F(CoordinatorServerTest, JobThatCouldNotStart_IsNotTaken) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const auto refusal = [&](const v1::JobSpec& spec) {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = spec;
    return CallJobs(&v1::JobService::Stub::SubmitJob, request).status();
  };
  v1::JobSpec spec = TestJob(5, 1);
  spec.mutable_checkpoint()->set_directory(directory_ / "ckpt");
  v1::SubmitJobRequest first;
  *first.mutable_spec() = spec;
  first.set_idempotency_key("the first");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto taken,
                                CallJobs(&v1::JobService::Stub::SubmitJob, first));
  AwaitState(taken.job_id(), v1::JOB_STATE_SUCCEEDED);
  std::filesystem::create_directories(directory_ / "ckpt" / "step-000000000005");
  EXPECT_THAT(refusal(spec), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("holds checkpoints of an earlier job")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto again,
                                CallJobs(&v1::JobService::Stub::SubmitJob, first));
  EXPECT_EQ(again.job_id(), taken.job_id()) << "the key names a job that was taken";

  spec.mutable_checkpoint()->set_directory(directory_ / "other");
  spec.mutable_checkpoint()->set_resume(directory_ / "none");
  EXPECT_THAT(refusal(spec),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("checkpoint.resume: ")));
  spec.mutable_checkpoint()->set_directory(directory_ / "state.sqlite");
  spec.mutable_checkpoint()->set_resume("latest");
  EXPECT_THAT(refusal(spec),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("checkpoint.directory: ")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto jobs,
                                CallJobs(&v1::JobService::Stub::ListJobs, v1::ListJobsRequest()));
  EXPECT_EQ(jobs.jobs_size(), 1);
}

TEST_F(CoordinatorServerTest, CheckpointThatAnotherJobIsToWrite_CanBeWaitedFor) {
  ASSERT_THAT(StartServer(), IsOk());
  v1::JobSpec spec = TestJob(5, 1);
  spec.mutable_checkpoint()->set_directory(directory_ / "ckpt");
  Submit(spec);
  spec.mutable_checkpoint()->set_directory(directory_ / "next");
  spec.mutable_checkpoint()->set_resume(directory_ / "ckpt" / "step-000000000005");
  EXPECT_EQ(Submit(spec), "test-2");
}

TEST_F(CoordinatorServerTest, CheckpointDirectoryOfAnotherCoordinator_IsRefusedUntilItIsFree) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  v1::JobSpec spec = TestJob(100'000, 1);
  spec.mutable_checkpoint()->set_directory(directory_ / "ckpt");
  const std::string running = Submit(spec);
  AwaitState(running, v1::JOB_STATE_RUNNING);
  const std::unique_ptr<v1::JobService::Stub> first = std::move(stub_);
  const std::unique_ptr<CoordinatorServer> first_server = std::move(server_);

  ASSERT_THAT(StartServer({"127.0.0.1", 0}, "other.sqlite"), IsOk());
  AddWorker({.name = "w1"});
  spec.mutable_training()->set_steps(5);
  spec.mutable_checkpoint()->set_directory(directory_ / "x" / ".." / "ckpt" / "");
  EXPECT_THAT(AwaitState(Submit(spec), v1::JOB_STATE_FAILED).summary().error(),
              AllOf(StartsWith("cannot start: checkpoint.directory: "), HasSubstr("ckpt"),
                    HasSubstr(absl::StrCat("is in use by process ", getpid()))));

  v1::CancelJobRequest cancel;
  cancel.set_job_id(running);
  ASSERT_THAT(Call("first", *first, &v1::JobService::Stub::CancelJob, cancel, kTimeout), IsOk());
  v1::WatchJobRequest watch;
  watch.set_job_id(running);
  StreamCanceller canceller;
  ASSERT_THAT(ReadStream("first", *first, &v1::JobService::Stub::WatchJob, watch, kTimeout,
                         canceller, [](const v1::JobEvent&) { return true; }),
              IsOk());
  AwaitState(Submit(spec), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace penstock
