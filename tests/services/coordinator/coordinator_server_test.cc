// CoordinatorServer: jobs, their failures, and the calls about them.
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <thread>

#include "base/mutex.h"
#include "base/seen_epoch.h"
#include "base/sha256.h"
#include "services/coordinator/coordinator_metrics.h"
#include "tests/services/coordinator/coordinator_fixture.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

// What it has seen comes with its refusal. This worker goes on refusing, so the job fails in the end.
TEST_F(CoordinatorServerTest, WorkerHasSeenALaterEpoch_IsAskedAgainAboveIt) {
  constexpr int64_t kSeen = int64_t{1} << 50;
  ASSERT_THAT(StartServer(), IsOk());
  ActingWorker& worker = AddWorker(
      {.name = "w0", .prepare_status = WithSeenEpoch(absl::AbortedError("is over"), kSeen)});
  const std::string job_id = Submit(TestJob(10, 1));
  const v1::GetJobResponse failed = AwaitState(job_id, v1::JOB_STATE_FAILED);
  EXPECT_THAT(failed.summary().error(),
              AllOf(StartsWith("worker w0 (stage 0): cannot prepare"), HasSubstr("is over")));
  EXPECT_EQ(worker.prepares(), 2);
  EXPECT_EQ(failed.epoch(), kSeen + 1);
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

// A worker of the build before, as it would introduce itself. It ends with what it is told (worker_program_test.cc).
TEST_F(CoordinatorServerTest, WorkerOfAnotherProtocolVersion_IsRefusedByNameAuditedAndCounted) {
  audit_file_ = directory_ / "audit.jsonl";
  ASSERT_THAT(StartServer(), IsOk());
  const auto registry = v1::WorkerRegistry::NewStub(
      MakeControlChannel(address_.ToString(), grpc::InsecureChannelCredentials()));
  v1::RegisterWorkerRequest old_worker;
  old_worker.set_name("w7");
  old_worker.set_address("127.0.0.1:1");
  old_worker.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT - 1);
  old_worker.set_build("0.0.9");
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_THAT(Call("coordinator", *registry, &v1::WorkerRegistry::Stub::RegisterWorker,
                     old_worker, kTimeout),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("worker w7 (build 0.0.9) speaks protocol version 1"),
                               HasSubstr(" version 2: install the coordinator's build"))));
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CoordinatorSnapshot snapshot, server_->Snapshot());
  EXPECT_EQ(snapshot.workers.workers_size(), 0);
  EXPECT_EQ(snapshot.rejected[static_cast<int>(Rejection::kOtherVersion)], 3);
  server_.reset();  // all of the audit log is written
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string audit, RealFiles().Read(audit_file_, 1 << 20));
  EXPECT_THAT(audit, AllOf(HasSubstr("\"action\":\"register\""),
                           HasSubstr("FAILED_PRECONDITION: worker w7 (build 0.0.9)")));
}

// A question may be answered long after its asker has gone.
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
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(absl::StrCat(": ", kNotDone)), HasSubstr("stopping"))));
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
  EXPECT_EQ(values.count("penstock_workers stuck"), 1u) << "a zero for each state";
  EXPECT_EQ(values["penstock_worker_up w1"], 1);
  EXPECT_EQ(values[absl::StrCat("penstock_job_running ", job_id)], 1);
  EXPECT_EQ(values[absl::StrCat("penstock_job_target_steps ", job_id)], 100'000);
  EXPECT_EQ(values[absl::StrCat("penstock_job_loss_not_finite ", job_id)], 0);
  EXPECT_GT(values[absl::StrCat("penstock_job_planning_seconds ", job_id)], 0);
  EXPECT_EQ(values[absl::StrCat("penstock_job_worker_slow_ratio ", job_id)], 1);
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
