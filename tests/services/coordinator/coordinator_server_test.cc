// CoordinatorServer over loopback gRPC, with workers that only act.
#include "services/coordinator/coordinator_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/coordinator/coordinator_metrics.h"
#include "services/coordinator/sqlite.h"
#include "services/rpc/channel.h"
#include "services/rpc/client.h"
#include "tests/services/coordinator/acting_worker.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kTimeout = absl::Seconds(30);

v1::JobSpec TestJob(int64_t steps, int32_t stages) {
  v1::JobSpec spec;
  spec.set_name("test");
  v1::GptSpec& gpt = *spec.mutable_model()->mutable_gpt();
  gpt.set_layers(2);
  gpt.set_width(8);
  gpt.set_heads(2);
  gpt.set_context(16);
  spec.mutable_data()->mutable_text()->set_path("a.txt");
  spec.mutable_training()->set_steps(steps);
  spec.mutable_training()->set_batch(8);
  spec.mutable_training()->set_microbatches(4);
  spec.mutable_training()->mutable_optimizer()->mutable_adamw()->set_learning_rate(0.01);
  spec.mutable_pipeline()->set_stages(stages);
  return spec;
}

class CoordinatorServerTest : public ::testing::Test {
 protected:
  CoordinatorServerTest()
      : directory_(std::filesystem::path(::testing::TempDir()) /
                   absl::StrCat("coordinator-", getpid(), "-",
                                ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(directory_);
  }
  ~CoordinatorServerTest() override {
    workers_.clear();
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  absl::Status StartServer(HostPort listen = {"127.0.0.1", 0},
                           const std::string& state_file = "state.sqlite") {
    CoordinatorServerOptions options{.listen = listen, .state_file = directory_ / state_file};
    options.limits.membership.heartbeat_timeout_ms = 1000;
    options.log = log_;
    options.audit_file = audit_file_;
    absl::StatusOr<std::unique_ptr<CoordinatorServer>> server =
        CoordinatorServer::Start(options, RealClock(), RealFiles());
    if (!server.ok()) {
      return server.status();
    }
    server_ = *std::move(server);
    address_ = server_->address();
    stub_ = v1::JobService::NewStub(
        MakeControlChannel(address_.ToString(), grpc::InsecureChannelCredentials()));
    return absl::OkStatus();
  }
  ActingWorker& AddWorker(ActingWorkerOptions options = {}) {
    options.coordinator = address_.ToString();
    workers_.push_back(std::make_unique<ActingWorker>(options));
    EXPECT_THAT(workers_.back()->Register(), IsOk());
    return *workers_.back();
  }

  template <typename Method, typename Request>
  auto CallJobs(Method method, const Request& request) {
    return Call("coordinator", *stub_, method, request, kTimeout);
  }
  std::string Submit(const v1::JobSpec& spec, const std::string& key = "") {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = spec;
    request.set_idempotency_key(key);
    const auto response = CallJobs(&v1::JobService::Stub::SubmitJob, request);
    EXPECT_THAT(response, IsOk());
    return response.ok() ? response->job_id() : "";
  }
  // Of one worker, when it is done.
  v1::ClusterProfile Profile() {
    v1::SubmitProfileRequest request;
    *request.mutable_spec() = TestJob(3, 1);
    request.mutable_profile()->add_samples(2);
    request.mutable_profile()->set_workers(1);
    const auto response = CallJobs(&v1::JobService::Stub::SubmitProfile, request);
    EXPECT_THAT(response, IsOk());
    return AwaitState(response->job_id(), v1::JOB_STATE_SUCCEEDED).profile();
  }
  absl::StatusOr<v1::GetJobResponse> GetJob(const std::string& job_id) {
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    return CallJobs(&v1::JobService::Stub::GetJob, request);
  }
  absl::StatusOr<std::vector<v1::JobEvent>> Watch(const std::string& job_id, int64_t after = 0) {
    v1::WatchJobRequest request;
    request.set_job_id(job_id);
    request.set_after_sequence(after);
    return Watch(request);
  }
  absl::StatusOr<std::vector<v1::JobEvent>> Watch(const v1::WatchJobRequest& request,
                                                  absl::Duration timeout = kTimeout) {
    std::vector<v1::JobEvent> events;
    StreamCanceller canceller;
    const absl::Status status =
        ReadStream("coordinator", *stub_, &v1::JobService::Stub::WatchJob, request, timeout,
                   canceller, [&](const v1::JobEvent& event) {
                     events.push_back(event);
                     return true;
                   });
    if (!status.ok()) {
      return status;
    }
    return events;
  }
  // Waits until the job's state is `state`; the job as it then is.
  v1::GetJobResponse AwaitState(const std::string& job_id, v1::JobState state) {
    const absl::Time give_up = absl::Now() + kTimeout;
    for (;;) {
      const absl::StatusOr<v1::GetJobResponse> job = GetJob(job_id);
      EXPECT_THAT(job, IsOk());
      if (!job.ok() || job->summary().state() == state || absl::Now() > give_up) {
        EXPECT_EQ(job->summary().state(), state) << job->summary().DebugString();
        return *job;
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  void AwaitStep(const std::string& job_id, int64_t step) {
    const absl::Time give_up = absl::Now() + kTimeout;
    while (GetJob(job_id)->summary().step() < step && absl::Now() < give_up) {
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  const std::filesystem::path directory_;
  std::string audit_file_;
  std::function<void(const std::string&)> log_;
  HostPort address_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<v1::JobService::Stub> stub_;
  std::vector<std::unique_ptr<ActingWorker>> workers_;
};

TEST_F(CoordinatorServerTest, Job_OnTwoWorkers_SucceedsAndIsWatchedToItsEnd) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  AddWorker({.name = "w1"});
  const std::string job_id = Submit(TestJob(20, 2));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<v1::JobEvent> events, Watch(job_id));
  int64_t sequence = 0, steps = 0;
  for (const v1::JobEvent& event : events) {
    EXPECT_EQ(event.sequence(), ++sequence);
    steps += event.has_step_done() ? 1 : 0;
  }
  EXPECT_EQ(steps, 20);
  EXPECT_EQ(events.back().state_changed().state(), v1::JOB_STATE_SUCCEEDED);

  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetJobResponse job, GetJob(job_id));
  EXPECT_EQ(job.plan().stages_size(), 2);
  EXPECT_EQ(job.result().tokens(), 200);
  EXPECT_EQ(job.result().train_loss(), 2.0);
  EXPECT_EQ(job.result().tokens_per_second(), 400.0);
  std::string digests;
  for (int layer = 0; layer < 7; ++layer) {
    absl::StrAppend(&digests, "digest ", layer);
  }
  EXPECT_EQ(job.result().weights_sha256(), Sha256Hex(digests));

  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto rest, Watch(job_id, sequence - 1));
  EXPECT_EQ(rest.size(), 1u);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto none, Watch(job_id, sequence));
  EXPECT_TRUE(none.empty());

  v1::GetTimelineRequest request;
  request.set_job_id(job_id);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetTimelineResponse timeline,
                                CallJobs(&v1::JobService::Stub::GetTimeline, request));
  EXPECT_EQ(timeline.workers(), 2);
  EXPECT_EQ(timeline.spans_size(), 2) << "kept although the workers may be gone by now";
}

TEST_F(CoordinatorServerTest, Worker_Disappears_FailsTheJobWithItsName) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  AddWorker({.name = "w1"});
  const std::string job_id = Submit(TestJob(100'000, 2));
  AwaitState(job_id, v1::JOB_STATE_RUNNING);
  const absl::Time lost = absl::Now();
  workers_.pop_back();
  const v1::GetJobResponse job = AwaitState(job_id, v1::JOB_STATE_FAILED);
  EXPECT_THAT(job.summary().error(), StartsWith("worker w1 (stage 1): was lost"));
  EXPECT_LT(absl::Now() - lost, absl::Seconds(20));
  // The other is stopped and free for the next job.
  const std::string next = Submit(TestJob(5, 1));
  AwaitState(next, v1::JOB_STATE_SUCCEEDED);
  EXPECT_GE(workers_[0]->stops(), 1);
}

TEST_F(CoordinatorServerTest, WorkerReportsFailure_StopsTheOthers) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  AddWorker({.name = "w1", .fail_after_step = 3});
  const std::string job_id = Submit(TestJob(100'000, 2));
  const v1::GetJobResponse job = AwaitState(job_id, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.summary().error(), "worker w1 (stage 1): the loss of step 3 is not finite");
  const absl::Time give_up = absl::Now() + kTimeout;
  while (workers_[0]->training() && absl::Now() < give_up) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_FALSE(workers_[0]->training());
}

TEST_F(CoordinatorServerTest, WorkerRefusesToPrepare_FailsTheJobWithItsReason) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0", .prepare_status = absl::NotFoundError("a.txt: no such file")});
  const std::string job_id = Submit(TestJob(10, 1));
  EXPECT_THAT(AwaitState(job_id, v1::JOB_STATE_FAILED).summary().error(),
              AllOf(StartsWith("worker w0 (stage 0): cannot prepare"), HasSubstr("a.txt")));
}

TEST_F(CoordinatorServerTest, WorkerOfAnotherBuild_FailsTheJobNamingBothDigests) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0", .digest = "other"});
  const std::string job_id = Submit(TestJob(10, 1));
  EXPECT_THAT(AwaitState(job_id, v1::JOB_STATE_FAILED).summary().error(),
              StartsWith("worker w0 (stage 0): derives schedule other, the coordinator "));
}

TEST_F(CoordinatorServerTest, Cancel_DrainsAtAStep) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  AddWorker({.name = "w1"});
  const std::string job_id = Submit(TestJob(100'000, 2));
  AwaitState(job_id, v1::JOB_STATE_RUNNING);
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  ASSERT_THAT(CallJobs(&v1::JobService::Stub::CancelJob, request), IsOk());
  const v1::GetJobResponse job = AwaitState(job_id, v1::JOB_STATE_CANCELLED);
  ASSERT_EQ(job.result().extra_cuts_size(), 1);
  EXPECT_EQ(job.result().extra_cuts(0), job.result().steps());
  // Cancelling what has ended changes nothing.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto again,
                                CallJobs(&v1::JobService::Stub::CancelJob, request));
  EXPECT_EQ(again.state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(CoordinatorServerTest, UnknownJob_IsNotFoundInEveryCall) {
  ASSERT_THAT(StartServer(), IsOk());
  const auto not_found = StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"nope\""));
  v1::CancelJobRequest cancel;
  cancel.set_job_id("nope");
  v1::GetTimelineRequest timeline;
  timeline.set_job_id("nope");
  EXPECT_THAT(GetJob("nope"), not_found);
  EXPECT_THAT(Watch("nope"), not_found);
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::CancelJob, cancel), not_found);
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::GetTimeline, timeline), not_found);
}

TEST_F(CoordinatorServerTest, InvalidJob_IsRefusedNamingTheKey) {
  ASSERT_THAT(StartServer(), IsOk());
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TestJob(10, 99);
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::SubmitJob, request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pipeline.stages: is 99")));
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::SubmitJob, v1::SubmitJobRequest()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name: is missing")));
}

TEST_F(CoordinatorServerTest, TimelineOfAWaitingJob_SaysWhyThereIsNone) {
  ASSERT_THAT(StartServer(), IsOk());
  v1::GetTimelineRequest request;
  request.set_job_id(Submit(TestJob(10, 1)));
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::GetTimeline, request),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has not begun to train")));
}

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

TEST_F(CoordinatorServerTest, JobIdLongerThanAny_IsRefusedWithoutRepeatingIt) {
  audit_file_ = directory_ / "audit.jsonl";
  ASSERT_THAT(StartServer(), IsOk());
  v1::CancelJobRequest cancel;
  cancel.set_job_id(std::string(1'000'000, 'x'));
  const auto refused = CallJobs(&v1::JobService::Stub::CancelJob, cancel);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 128")));
  EXPECT_LT(refused.status().message().size(), 300u);
  EXPECT_LT(std::filesystem::file_size(audit_file_), 2000u);
  EXPECT_THAT(GetJob(cancel.job_id()), StatusIs(absl::StatusCode::kInvalidArgument, _));
  EXPECT_THAT(Watch(cancel.job_id()), StatusIs(absl::StatusCode::kInvalidArgument, _));
}

// What a worker says of itself is called, shown and logged.
TEST_F(CoordinatorServerTest, WorkerThatSaysWhatIsNoNameOrAddress_IsRefused) {
  ASSERT_THAT(StartServer(), IsOk());
  const auto registry = v1::WorkerRegistry::NewStub(
      MakeControlChannel(address_.ToString(), grpc::InsecureChannelCredentials()));
  const auto register_as = [&](const std::string& name, const std::string& address) {
    v1::RegisterWorkerRequest request;
    request.set_name(name);
    request.set_address(address);
    request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    return Call("coordinator", *registry, &v1::WorkerRegistry::Stub::RegisterWorker, request,
                kTimeout)
        .status();
  };
  EXPECT_THAT(register_as("w\nforged", "127.0.0.1:1"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
  for (const char* address : {"", "unix:/run/docker.sock", "dns:///evil:1", "127.0.0.1", "x:y:1"}) {
    EXPECT_THAT(register_as("w", address),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("HOST:PORT")))
        << address;
  }
  EXPECT_THAT(register_as("w", "10.0.0.7:7072"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--insecure-network")));
  EXPECT_THAT(register_as("w", "127.0.0.1:1"), IsOk());
}

// A limit on the size of files stands for a full disk.
TEST_F(CoordinatorServerTest, StateFileCannotGrow_RefusesJobsUntilItCan) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const std::string running = Submit(TestJob(100'000, 1));
  AwaitStep(running, 1);
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full = {.rlim_cur = 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TestJob(5, 1);
  request.set_idempotency_key("k");
  const auto refused = CallJobs(&v1::JobService::Stub::SubmitJob, request);
  const int64_t step = GetJob(running)->summary().step();
  AwaitStep(running, step + 10);
  const int64_t later = GetJob(running)->summary().step();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);

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

// A question may be answered long after whoever asked it has gone.
TEST_F(CoordinatorServerTest, LoopIsBusy_CallsThatGiveUpDoNoHarm) {
  std::promise<void> blocked, gate;
  std::atomic<bool> armed = true;
  log_ = [&](const std::string&) {  // on the loop's thread
    if (armed.exchange(false)) {
      blocked.set_value();
      gate.get_future().wait();
    }
  };
  ASSERT_THAT(StartServer(), IsOk());
  std::thread client([&] { Submit(TestJob(10, 1)); });
  blocked.get_future().wait();
  constexpr absl::Duration kSoon = absl::Milliseconds(50);
  for (int i = 0; i < 20; ++i) {
    v1::GetTimelineRequest timeline;
    timeline.set_job_id(std::string(40 + i, 'x'));  // too long to lie within the string itself
    v1::WatchJobRequest watch;
    watch.set_job_id(timeline.job_id());
    const auto gave_up = StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(""));
    EXPECT_THAT(
        Call("coordinator", *stub_, &v1::JobService::Stub::GetTimeline, timeline, kSoon).status(),
        gave_up);
    EXPECT_THAT(Watch(watch, kSoon).status(), gave_up);
  }
  absl::SleepFor(absl::Milliseconds(200));  // until the server has dropped the calls too
  gate.set_value();
  client.join();
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::ListJobs, v1::ListJobsRequest()), IsOk());
}

TEST_F(CoordinatorServerTest, PastOnly_EndsWithTheLastEventThereIs) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  v1::WatchJobRequest request;
  request.set_job_id(Submit(TestJob(100'000, 1)));
  request.set_past_only(true);
  AwaitStep(request.job_id(), 600);  // more than one page
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto past, Watch(request));
  ASSERT_GT(past.size(), 600u);
  for (size_t i = 0; i < past.size(); ++i) {
    EXPECT_EQ(past[i].sequence(), static_cast<int64_t>(i) + 1);
  }
  EXPECT_EQ(GetJob(request.job_id())->summary().state(), v1::JOB_STATE_RUNNING);
  // A job that waits has a past too, and none beyond its last event.
  request.set_job_id(Submit(TestJob(10, 1)));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto waits, Watch(request));
  ASSERT_FALSE(waits.empty());
  request.set_after_sequence(waits.back().sequence());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto none, Watch(request));
  EXPECT_TRUE(none.empty());
}

// More questions for timelines than there are handlers, while a worker does not answer: heartbeats
// must still get through.
TEST_F(CoordinatorServerTest, TimelinesThatDoNotCome_KeepNobodyWaiting) {
  ASSERT_THAT(StartServer(), IsOk());
  std::promise<void> gate;
  AddWorker({.name = "w0", .timeline_gate = gate.get_future().share()});
  const std::string job_id = Submit(TestJob(100'000, 1));
  AwaitState(job_id, v1::JOB_STATE_RUNNING);
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 2 * rpc_limits::kHandlerThreads; ++i) {
    clients.emplace_back([&] {
      v1::GetTimelineRequest request;
      request.set_job_id(job_id);
      answered += CallJobs(&v1::JobService::Stub::GetTimeline, request).ok() ? 1 : 0;
    });
  }
  absl::SleepFor(absl::Milliseconds(2500));  // longer than a worker may be silent
  EXPECT_EQ(GetJob(job_id)->summary().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(answered, 0);
  gate.set_value();
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(answered, 2 * rpc_limits::kHandlerThreads);
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

TEST_F(CoordinatorServerTest, Drain_CutsTheRunningJobAndRefusesNewOnes) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const std::string job_id = Submit(TestJob(100'000, 1));
  AwaitState(job_id, v1::JOB_STATE_RUNNING);
  ASSERT_THAT(server_->Drain(kTimeout), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetJobResponse job, GetJob(job_id));
  EXPECT_EQ(job.summary().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job.summary().reason(), "the coordinator was stopped");
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TestJob(10, 1);
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::SubmitJob, request),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stopping")));
}

TEST_F(CoordinatorServerTest, Shutdown_WhileAJobRunsAndIsWatched_Returns) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  const std::string job_id = Submit(TestJob(100'000, 1));
  AwaitState(job_id, v1::JOB_STATE_RUNNING);
  std::thread watcher([&] { EXPECT_FALSE(Watch(job_id).ok()); });
  absl::SleepFor(absl::Milliseconds(50));
  server_->Shutdown();
  watcher.join();
}

// Lost answers are asked for again: every call twice has the effect of once.
TEST_F(CoordinatorServerTest, EveryCallTwice_HasTheEffectOfOnce) {
  ASSERT_THAT(StartServer(), IsOk());
  ActingWorker& worker = AddWorker({.name = "w0"});
  ASSERT_THAT(worker.Register(), IsOk());
  const std::string job_id = Submit(TestJob(100'000, 1), "k");
  EXPECT_EQ(Submit(TestJob(100'000, 1), "k"), job_id);
  AwaitState(job_id, v1::JOB_STATE_RUNNING);
  AwaitStep(job_id, 1);
  EXPECT_EQ(worker.prepares(), 1);
  auto registry = v1::WorkerRegistry::NewStub(
      MakeControlChannel(address_.ToString(), grpc::InsecureChannelCredentials()));
  v1::ReportRunRequest report;
  report.set_worker("w0");
  report.set_incarnation(4711);
  report.set_job_id(job_id);
  report.set_epoch(worker.epoch());
  report.set_first_sequence(0);
  report.add_events()->mutable_run_failed()->set_message("an old event comes again");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const auto acknowledged,
      Call("coordinator", *registry, &v1::WorkerRegistry::Stub::ReportRun, report, kTimeout));
  EXPECT_GE(acknowledged.next_sequence(), 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CoordinatorSnapshot snapshot, server_->Snapshot());
  EXPECT_EQ(snapshot.rejected[static_cast<int>(Rejection::kDuplicate)], 1);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(job_id);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(CallJobs(&v1::JobService::Stub::CancelJob, cancel), IsOk());
  }
  AwaitState(job_id, v1::JOB_STATE_CANCELLED);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ListJobsResponse jobs,
                                CallJobs(&v1::JobService::Stub::ListJobs, v1::ListJobsRequest()));
  EXPECT_EQ(jobs.jobs_size(), 1);
}

TEST_F(CoordinatorServerTest, Snapshot_CountsJobsAndWorkers) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  AddWorker({.name = "w1"});
  v1::JobSpec spec = TestJob(100'000, 1);
  spec.mutable_prediction()->set_step_seconds(0.25);
  spec.mutable_prediction()->add_memory_bytes(4096);
  const std::string job_id = Submit(spec);
  AwaitState(job_id, v1::JOB_STATE_RUNNING);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CoordinatorSnapshot snapshot, server_->Snapshot());
  std::map<std::string, double> values;
  MetricSet metrics;
  AddCoordinatorMetrics(snapshot, metrics);
  for (const MetricFamily& family : metrics.Take()) {
    if (family.samples[0].labels.empty()) continue;
    for (const MetricSample& sample : family.samples) {
      values[absl::StrCat(family.name, " ", sample.labels[0].second)] = sample.value;
      if (sample.labels.back() == std::pair<std::string, std::string>("source", "predicted")) {
        values[absl::StrCat(family.name, " predicted of ", sample.labels[0].second)] = sample.value;
      }
    }
  }
  EXPECT_EQ(values["penstock_jobs running"], 1);
  EXPECT_EQ(values["penstock_jobs failed"], 0);
  EXPECT_EQ(values["penstock_workers busy"], 1);
  EXPECT_EQ(values["penstock_workers free"], 1);
  EXPECT_EQ(values["penstock_worker_up w1"], 1);
  EXPECT_EQ(values[absl::StrCat("penstock_job_running ", job_id)], 1);
  EXPECT_EQ(values[absl::StrCat("penstock_job_target_steps ", job_id)], 100'000);
  EXPECT_EQ(values[absl::StrCat("penstock_job_loss_not_finite ", job_id)], 0);
  EXPECT_GT(values[absl::StrCat("penstock_job_planning_seconds ", job_id)], 0);
  EXPECT_GT(values[absl::StrCat("penstock_job_last_step_timestamp_seconds ", job_id)], 1.6e9);
  EXPECT_EQ(values.count("penstock_rejected_messages_total stale_epoch"), 1u);
  EXPECT_EQ(values.count(absl::StrCat("penstock_job_steps_total ", job_id)), 1u);
  EXPECT_EQ(values[absl::StrCat("penstock_job_step_seconds predicted of ", job_id)], 0.25);
  EXPECT_EQ(values[absl::StrCat("penstock_job_worker_memory_bytes predicted of ", job_id)], 4096);
  EXPECT_EQ(values.count(absl::StrCat("penstock_job_worker_step_sent_bytes predicted of ", job_id)),
            0u);
  EXPECT_EQ(values.count(absl::StrCat("penstock_job_off_prediction ", job_id)), 1u);
}

}  // namespace
}  // namespace penstock
