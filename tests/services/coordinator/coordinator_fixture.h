// CoordinatorServerTest: a CoordinatorServer over loopback gRPC, with workers that only act, and the calls of a client.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/coordinator/coordinator_server.h"
#include "services/rpc/channel.h"
#include "services/rpc/client.h"
#include "tests/services/coordinator/acting_worker.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {

inline constexpr absl::Duration kTimeout = absl::Seconds(30);

inline v1::JobSpec TestJob(int64_t steps, int32_t stages) {
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
  ~CoordinatorServerTest() override {
    workers_.clear();
    server_.reset();
  }

  absl::Status StartServer(HostPort listen = {"127.0.0.1", 0},
                           const std::string& state_file = "state.sqlite") {
    CoordinatorServerOptions options{.listen = std::move(listen),
                                     .state_file = directory_ / state_file};
    options.limits.membership.heartbeat_timeout_ms = 1000;
    options.limits.draw = draw_;
    options.drop_damaged = drop_damaged_;
    options.log = log_;
    options.spans = spans_;
    options.audit_file = audit_file_;
    options.sync_audit = sync_audit_;
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
  // Has `clients` cancel a job that there is not, all at once. Returns what each heard.
  std::vector<absl::Status> CancelUnknownJob(int clients) {
    std::vector<absl::Status> heard(clients);
    std::vector<std::thread> threads;
    threads.reserve(clients);
    for (absl::Status& mine : heard) {
      threads.emplace_back([&] {
        v1::CancelJobRequest request;
        request.set_job_id("unknown");
        mine = CallJobs(&v1::JobService::Stub::CancelJob, request).status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return heard;
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

  const TestDirectory own_;
  const std::filesystem::path directory_ = own_.path();
  std::string audit_file_;
  std::function<uint32_t()> draw_;
  bool drop_damaged_ = false;
  std::function<int(int)> sync_audit_ = fsync;
  std::function<void(const std::string&)> log_;
  std::function<void(std::vector<TraceSpan>)> spans_;
  HostPort address_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<v1::JobService::Stub> stub_;
  std::vector<std::unique_ptr<ActingWorker>> workers_;
};

}  // namespace penstock
