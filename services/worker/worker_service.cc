#include "services/worker/worker_service.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "schedule/block_delay_counter.h"
#include "services/worker/timeline_message.h"

namespace penstock {
namespace {

// An answer must leave in time: handlers stop waiting this long before the caller does.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(50);
// For callers that set no deadline.
constexpr absl::Duration kHandlerTimeMax = absl::Minutes(10);
// Bound on a timeline's message; the rest is for the fields around it.
constexpr int64_t kTimelineBytesMax = rpc_limits::kControlMessageBytesMax - (16 << 10);

absl::Time HandlerDeadline(const CallInfo& call) {
  return std::min(call.deadline - kAnswerTime, absl::Now() + kHandlerTimeMax);
}

void KeepSince(int64_t start_ns, Timeline& timeline) {
  std::erase_if(timeline.spans, [start_ns](const Span& span) { return span.end_ns < start_ns; });
}

void KeepPasses(Timeline& timeline) {
  std::erase_if(timeline.spans, [](const Span& span) {
    return !MakesBlockEvents(span, std::numeric_limits<int32_t>::max());
  });
}

void AddStages(const RunHost& host, const std::string& job_id,
               v1::GetRunTimelineResponse& response) {
  RunHost::Activity activity = host.GetActivity(/*with_stages=*/true);
  if (activity.job_id != job_id) return;  // another job has begun meanwhile
  for (v1::StageReport& stage : activity.stages) *response.add_stages() = std::move(stage);
}

}  // namespace

void AddWorkerControl(RpcServer& server, RunHost& host, const TermFence& terms, Clock& clock) {
  using Service = v1::WorkerControl::AsyncService;
  Service& service = server.AddService<Service>(Callers::kCluster);

  server.Unary(service, &Service::RequestPrepareRun,
               [&host, &terms](const v1::PrepareRunRequest& request,
                               const CallInfo& call) -> absl::StatusOr<v1::PrepareRunResponse> {
                 PENSTOCK_RETURN_IF_ERROR(terms.Check(request.term()));
                 return host.Prepare(request, HandlerDeadline(call), call.trace);
               });
  server.Unary(
      service, &Service::RequestPrepareProfile,
      [&host, &terms](const v1::PrepareProfileRequest& request,
                      const CallInfo& call) -> absl::StatusOr<v1::PrepareProfileResponse> {
        PENSTOCK_RETURN_IF_ERROR(terms.Check(request.term()));
        PENSTOCK_RETURN_IF_ERROR(host.Prepare(request, HandlerDeadline(call), call.trace).status());
        return v1::PrepareProfileResponse();
      });
  server.Unary(service, &Service::RequestStartRun,
               [&host, &terms](const v1::StartRunRequest& request,
                               const CallInfo&) -> absl::StatusOr<v1::StartRunResponse> {
                 PENSTOCK_RETURN_IF_ERROR(terms.Check(request.term()));
                 PENSTOCK_RETURN_IF_ERROR(host.Start(request.job_id(), request.epoch()));
                 return v1::StartRunResponse();
               });
  server.Unary(service, &Service::RequestHoldRun,
               [&host, &terms](const v1::HoldRunRequest& request,
                               const CallInfo&) -> absl::StatusOr<v1::HoldRunResponse> {
                 PENSTOCK_RETURN_IF_ERROR(terms.Check(request.term()));
                 v1::HoldRunResponse response;
                 PENSTOCK_ASSIGN_OR_RETURN(const int64_t step,
                                           host.Hold(request.job_id(), request.epoch()));
                 response.set_step(step);
                 return response;
               });
  server.Unary(
      service, &Service::RequestCutRun,
      [&host, &terms](const v1::CutRunRequest& request,
                      const CallInfo&) -> absl::StatusOr<v1::CutRunResponse> {
        PENSTOCK_RETURN_IF_ERROR(terms.Check(request.term()));
        PENSTOCK_RETURN_IF_ERROR(host.Cut(request.job_id(), request.epoch(), request.step()));
        return v1::CutRunResponse();
      });
  server.Unary(service, &Service::RequestStopRun,
               [&host, &terms](const v1::StopRunRequest& request,
                               const CallInfo& call) -> absl::StatusOr<v1::StopRunResponse> {
                 PENSTOCK_RETURN_IF_ERROR(terms.Check(request.term()));
                 PENSTOCK_RETURN_IF_ERROR(host.Stop(request.job_id(), request.epoch(),
                                                    request.reason(), HandlerDeadline(call)));
                 return v1::StopRunResponse();
               });
  server.Unary(
      service, &Service::RequestGetRunTimeline,
      [&host, &clock](const v1::GetRunTimelineRequest& request,
                      const CallInfo&) -> absl::StatusOr<v1::GetRunTimelineResponse> {
        PENSTOCK_ASSIGN_OR_RETURN(Timeline timeline, host.RecentTimeline(request.job_id()));
        const int64_t now_ns = clock.MonotonicNs();
        if (request.last_ns() > 0) KeepSince(now_ns - request.last_ns(), timeline);
        if (request.passes_only()) KeepPasses(timeline);
        v1::GetRunTimelineResponse reports;
        if (request.with_stages()) AddStages(host, request.job_id(), reports);
        v1::GetRunTimelineResponse response =
            ToMessage(timeline, kTimelineBytesMax - static_cast<int64_t>(reports.ByteSizeLong()));
        response.mutable_stages()->Swap(reports.mutable_stages());
        response.set_monotonic_ns(now_ns);
        return response;
      });
}

}  // namespace penstock
