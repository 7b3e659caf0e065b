// What a CoordinatorServer tells of what its jobs did: timelines, and spans for a collector.
#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "base/mutex.h"
#include "job/job_trace.h"
#include "tests/services/coordinator/coordinator_fixture.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST_F(CoordinatorServerTest, TimelineOfAWaitingJob_SaysWhyThereIsNone) {
  ASSERT_THAT(StartServer(), IsOk());
  v1::GetTimelineRequest request;
  request.set_job_id(Submit(TestJob(10, 1)));
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::GetTimeline, request),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has not begun to train")));
}

TEST_F(CoordinatorServerTest, FailedJob_KeepsItsTimelineAndNamesTheWorkerThatIsGone) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  AddWorker({.name = "w1"});
  v1::GetTimelineRequest request;
  request.set_job_id(Submit(TestJob(100'000, 2)));
  AwaitState(request.job_id(), v1::JOB_STATE_RUNNING);
  workers_.pop_back();
  AwaitState(request.job_id(), v1::JOB_STATE_FAILED);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetTimelineResponse timeline,
                                CallJobs(&v1::JobService::Stub::GetTimeline, request));
  EXPECT_EQ(timeline.workers(), 2);
  EXPECT_EQ(timeline.spans_size(), 1);
  ASSERT_EQ(timeline.missing_workers_size(), 1);
  EXPECT_EQ(timeline.missing_workers(0), "w1");
  // It is kept: the other worker may go, too.
  for (absl::Time end = absl::Now() + absl::Seconds(20); absl::Now() < end;) {
    if (server_->Look(request.job_id())->live != nullptr) break;
    absl::SleepFor(absl::Milliseconds(20));
  }
  workers_.clear();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetTimelineResponse kept,
                                CallJobs(&v1::JobService::Stub::GetTimeline, request));
  EXPECT_EQ(kept.spans_size(), 1);
}

TEST_F(CoordinatorServerTest, JobThatFailedByItself_KeepsItsTimeline) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0", .fail_after_step = 3});
  v1::GetTimelineRequest request;
  request.set_job_id(Submit(TestJob(100'000, 1)));
  AwaitState(request.job_id(), v1::JOB_STATE_FAILED);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetTimelineResponse timeline,
                                CallJobs(&v1::JobService::Stub::GetTimeline, request));
  EXPECT_EQ(timeline.spans_size(), 1);
}

TEST_F(CoordinatorServerTest, CancelledJob_HasTheTimelineOfItsSteps) {
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker({.name = "w0"});
  v1::GetTimelineRequest request;
  request.set_job_id(Submit(TestJob(100'000, 1)));
  AwaitState(request.job_id(), v1::JOB_STATE_RUNNING);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(request.job_id());
  ASSERT_THAT(CallJobs(&v1::JobService::Stub::CancelJob, cancel), IsOk());
  AwaitState(request.job_id(), v1::JOB_STATE_CANCELLED);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetTimelineResponse timeline,
                                CallJobs(&v1::JobService::Stub::GetTimeline, request));
  EXPECT_EQ(timeline.spans_size(), 1);
}

TEST_F(CoordinatorServerTest, JobThatNeverTrained_SaysWhyItHasNoTimeline) {
  ASSERT_THAT(StartServer(), IsOk());
  v1::GetTimelineRequest request;
  request.set_job_id(Submit(TestJob(10, 1)));
  v1::CancelJobRequest cancel;
  cancel.set_job_id(request.job_id());
  ASSERT_THAT(CallJobs(&v1::JobService::Stub::CancelJob, cancel), IsOk());
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::GetTimeline, request),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("ended (cancelled) before it began to train")));
  AddWorker({.name = "w0", .prepare_status = absl::InvalidArgumentError("no such file")});
  request.set_job_id(Submit(TestJob(10, 1)));
  AwaitState(request.job_id(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(CallJobs(&v1::JobService::Stub::GetTimeline, request),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("ended (failed) before it began to train")));
}

// A job outlives the call that submitted it, and the coordinator.
TEST_F(CoordinatorServerTest, TraceOfASubmission_IsKeptAndReachesTheWorkers) {
  ASSERT_THAT(StartServer(), IsOk());
  const TraceContext submission = {.trace_id = {1, 2, 3}, .span_id = {4}, .sampled = false};
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TestJob(3, 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const v1::SubmitJobResponse traced,
      Call("coordinator", *stub_, &v1::JobService::Stub::SubmitJob, request, kTimeout, submission));
  const std::string other = Submit(TestJob(3, 1));
  const HostPort address = address_;
  server_.reset();
  ASSERT_THAT(StartServer(address), IsOk());
  EXPECT_EQ(GetJob(traced.job_id())->traceparent(), FormatTraceparent(submission));
  EXPECT_EQ(GetJob(other)->traceparent(), "");

  ActingWorker& worker = AddWorker();
  const v1::GetJobResponse first = AwaitState(traced.job_id(), v1::JOB_STATE_SUCCEEDED);
  const v1::GetJobResponse second = AwaitState(other, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(first.traceparent(), FormatTraceparent(submission));
  const TraceContext trace = JobTraceOf(first);
  EXPECT_EQ(trace.trace_id, submission.trace_id);
  EXPECT_FALSE(trace.sampled);
  EXPECT_THAT(worker.traces(),
              UnorderedElementsAre(FormatTraceparent(JobTraceOf(second)), FormatTraceparent(trace)))
      << "every call carries the trace of its job";
}

TEST_F(CoordinatorServerTest, Spans_OfAJobAreHandedOn) {
  Mutex mutex;
  std::vector<std::string> names;
  spans_ = [&](const std::vector<TraceSpan>& spans) {
    MutexLock lock(mutex);
    for (const TraceSpan& span : spans) names.push_back(span.name);
  };
  ASSERT_THAT(StartServer(), IsOk());
  AddWorker();
  AwaitState(Submit(TestJob(3, 1)), v1::JOB_STATE_SUCCEEDED);
  server_->Shutdown();  // which reads what there is once more
  MutexLock lock(mutex);
  EXPECT_THAT(names, ElementsAre("queued", "preparing", "steps 1-3", "training", "job"));
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
  clients.reserve(2 * rpc_limits::kHandlerThreads);
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

}  // namespace
}  // namespace penstock
