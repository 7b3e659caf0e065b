#include "services/coordinator/worker_caller.h"

#include <utility>
#include <variant>

namespace penstock {
namespace {

using Stub = v1::WorkerControl::Stub;

// The method of each request.
auto MethodOf(const v1::PrepareRunRequest&) { return &Stub::AsyncPrepareRun; }
auto MethodOf(const v1::StartRunRequest&) { return &Stub::AsyncStartRun; }
auto MethodOf(const v1::HoldRunRequest&) { return &Stub::AsyncHoldRun; }
auto MethodOf(const v1::CutRunRequest&) { return &Stub::AsyncCutRun; }
auto MethodOf(const v1::StopRunRequest&) { return &Stub::AsyncStopRun; }

// What the coordinator wants to know of each response.
void Read(const v1::PrepareRunResponse& response, CallAnswer& answer) {
  answer.schedule_digest = response.schedule_digest();
}
void Read(const v1::StartRunResponse&, CallAnswer&) {}
void Read(const v1::HoldRunResponse& response, CallAnswer& answer) {
  answer.step = response.step();
}
void Read(const v1::CutRunResponse&, CallAnswer&) {}
void Read(const v1::StopRunResponse&, CallAnswer&) {}

}  // namespace

void WorkerCaller::Attempt(std::shared_ptr<const CallWorker> call, int attempt) {
  const bool prepares = std::holds_alternative<v1::PrepareRunRequest>(call->request);
  std::visit(
      [&](const auto& request) {
        calls_.Start(
            call->worker, call->address, MethodOf(request), request,
            prepares ? kPrepareTimeout : kControlTimeout,
            [this, call, attempt](auto response) {
              CallAnswer answer{.job_id = call->job_id,
                                .epoch = call->epoch,
                                .worker_index = call->worker_index,
                                .request = call->request.index(),
                                .status = response.status()};
              if (response.ok()) {
                Read(*response, answer);
              }
              loop_.Post([this, call, attempt, answer](Coordinator& coordinator, Now now) {
                OnAnswer(call, attempt, answer, coordinator, now);
              });
            },
            call->trace);
      },
      call->request);
}

void WorkerCaller::OnAnswer(std::shared_ptr<const CallWorker> call, int attempt,
                            const CallAnswer& answer, Coordinator& coordinator, Now now) {
  const bool again = absl::IsUnavailable(answer.status) || absl::IsDeadlineExceeded(answer.status);
  if (again && attempt < kCallAttemptsMax) {
    loop_.PostAfter(kCallRetryDelay,
                    [this, call, attempt](Coordinator&, Now) { Attempt(call, attempt + 1); });
    return;
  }
  coordinator.OnAnswer(answer, now);
}

}  // namespace penstock
