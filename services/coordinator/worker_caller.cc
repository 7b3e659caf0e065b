#include "services/coordinator/worker_caller.h"

#include <utility>
#include <variant>

#include "base/fault_points.h"

namespace penstock {
namespace {

using Stub = v1::WorkerControl::Stub;

// The method of each request.
auto MethodOf(const v1::PrepareRunRequest&) { return &Stub::AsyncPrepareRun; }
auto MethodOf(const v1::PrepareProfileRequest&) { return &Stub::AsyncPrepareProfile; }
auto MethodOf(const v1::StartRunRequest&) { return &Stub::AsyncStartRun; }
auto MethodOf(const v1::HoldRunRequest&) { return &Stub::AsyncHoldRun; }
auto MethodOf(const v1::CutRunRequest&) { return &Stub::AsyncCutRun; }
auto MethodOf(const v1::StopRunRequest&) { return &Stub::AsyncStopRun; }

}  // namespace

void WorkerCaller::Attempt(std::shared_ptr<const CallWorker> call, int attempt) {
  const bool prepares = std::holds_alternative<v1::PrepareRunRequest>(call->request) ||
                        std::holds_alternative<v1::PrepareProfileRequest>(call->request);
  PENSTOCK_FAULT_POINT(kCallBeforeStart);
  std::visit(
      [&](const auto& request) {
        calls_.Start(
            call->worker, call->address, MethodOf(request), request,
            prepares ? kPrepareTimeout : kControlTimeout,
            [this, call, attempt, prepares](auto response) {
              PENSTOCK_FAULT_POINT(kCallAfterAnswer);
              const int attempts_max = prepares && absl::IsDeadlineExceeded(response.status())
                                           ? kPrepareAttemptsMax
                                           : kCallAttemptsMax;
              const bool again = absl::IsUnavailable(response.status()) ||
                                 absl::IsDeadlineExceeded(response.status());
              loop_.Post(
                  [this, call, attempt, again, attempts_max,
                   answer = CallAnswer{call->epoch, call->worker_index, std::move(response)}](
                      Coordinator& coordinator, Now now) {
                    if (!again || attempt >= attempts_max) {
                      return coordinator.OnAnswer(call->job_id, answer, now);
                    }
                    loop_.PostAfter(kCallRetryDelay, [this, call, attempt](Coordinator&, Now) {
                      Attempt(call, attempt + 1);
                    });
                  });
            },
            call->trace);
      },
      call->request);
}

}  // namespace penstock
