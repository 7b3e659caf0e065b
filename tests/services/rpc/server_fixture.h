// An RpcServer over loopback and its client, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/channel.h"
#include "services/rpc/client.h"
#include "services/rpc/server.h"
#include "tests/support/status_matchers.h"

namespace penstock {

inline constexpr absl::Duration kTimeout = absl::Seconds(20);

// A server with a unary method (GetJob), one that answers later (GetTimeline) and a stream (WatchJob),
// whose handlers a test chooses, and with a worker's heartbeat and report.
class ServerTest : public ::testing::Test {
 protected:
  using Service = v1::JobService::AsyncService;

  void StartServer(RpcServerOptions options = {}) {
    if (options.listen.host.empty()) options.listen = {"127.0.0.1", 0};
    server_ = std::make_unique<RpcServer>(options);
    auto& service = server_->AddService<Service>();
    server_->Unary(service, &Service::RequestGetJob,
                   [this](const v1::GetJobRequest& r, const CallInfo& c) { return get_(r, c); });
    server_->UnaryAsync(
        service, &Service::RequestGetTimeline,
        [this](const v1::GetTimelineRequest& request, const CallInfo&,
               Reply<v1::GetTimelineResponse> reply) { later_(request, std::move(reply)); });
    server_->Stream(service, &Service::RequestWatchJob,
                    [this](const v1::WatchJobRequest& r, const CallInfo& c, StreamWaker w) {
                      return watch_(r, c, std::move(w));
                    });
    using Registry = v1::WorkerRegistry::AsyncService;
    auto& registry = server_->AddService<Registry>(Callers::kCluster);
    server_->Unary(
        registry, &Registry::RequestHeartbeat,
        [](const v1::HeartbeatRequest&, const CallInfo&) { return v1::HeartbeatResponse(); });
    server_->UnaryAsync(registry, &Registry::RequestReportRun,
                        [this](const v1::ReportRunRequest&, const CallInfo&,
                               Reply<v1::ReportRunResponse> reply) { report_(std::move(reply)); });
    ASSERT_THAT(server_->Start(), IsOk());
    peer_ = server_->address().ToString();
    stub_ = v1::JobService::NewStub(MakeControlChannel(peer_, grpc::InsecureChannelCredentials()));
    registry_ =
        v1::WorkerRegistry::NewStub(MakeControlChannel(peer_, grpc::InsecureChannelCredentials()));
  }

  absl::StatusOr<v1::GetJobResponse> GetJob(const std::string& id,
                                            absl::Duration timeout = kTimeout) {
    v1::GetJobRequest request;
    request.set_job_id(id);
    return Call(peer_, *stub_, &v1::JobService::Stub::GetJob, request, timeout);
  }
  absl::StatusOr<v1::GetTimelineResponse> GetTimeline() {
    return Call(peer_, *stub_, &v1::JobService::Stub::GetTimeline, v1::GetTimelineRequest(),
                kTimeout);
  }
  absl::Status Heartbeat() {
    return Call(peer_, *registry_, &v1::WorkerRegistry::Stub::Heartbeat, v1::HeartbeatRequest(),
                rpc_limits::kHeartbeatCallTimeout)
        .status();
  }
  absl::Status Watch(const std::function<bool(const v1::JobEvent&)>& on_event,
                     absl::Duration timeout = kTimeout) {
    return ReadStream(peer_, *stub_, &v1::JobService::Stub::WatchJob, v1::WatchJobRequest(),
                      timeout, canceller_, on_event);
  }

  UnaryHandler<v1::GetJobRequest, v1::GetJobResponse> get_ = [](const v1::GetJobRequest& request,
                                                                const CallInfo&) {
    v1::GetJobResponse response;
    response.mutable_summary()->set_job_id(request.job_id());
    return response;
  };
  std::function<void(const v1::GetTimelineRequest&, Reply<v1::GetTimelineResponse>)> later_;
  std::function<void(Reply<v1::ReportRunResponse>)> report_;
  StreamHandler<v1::WatchJobRequest, v1::JobEvent> watch_ =
      [](const v1::WatchJobRequest&, const CallInfo&, const StreamWaker&) {
        return absl::UnimplementedError("not in this test");
      };
  std::unique_ptr<RpcServer> server_;
  std::string peer_;
  std::unique_ptr<v1::JobService::Stub> stub_;
  std::unique_ptr<v1::WorkerRegistry::Stub> registry_;
  StreamCanceller canceller_;
};

}  // namespace penstock
