#include "services/rpc/health.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "services/rpc/server.h"

namespace penstock {
namespace {

using Service = grpc::health::v1::Health::AsyncService;
using Request = grpc::health::v1::HealthCheckRequest;
using Response = grpc::health::v1::HealthCheckResponse;

Response Status(bool known, bool serving) {
  Response response;
  response.set_status(!known    ? Response::SERVICE_UNKNOWN
                      : serving ? Response::SERVING
                                : Response::NOT_SERVING);
  return response;
}

}  // namespace

void HealthService::AddTo(RpcServer& server) {
  Service& service = server.AddService<Service>(Callers::kProbes);
  server.Unary(service, &Service::RequestCheck,
               [this](const Request& request, const CallInfo&) -> absl::StatusOr<Response> {
                 if (!request.service().empty()) {
                   return absl::NotFoundError(absl::StrCat("no health of ", request.service(),
                                                           " alone; ask for the whole server"));
                 }
                 MutexLock lock(mutex_);
                 return Status(/*known=*/true, serving_);
               });
  server.Stream(service, &Service::RequestWatch,
                [this](const Request& request, const CallInfo&,
                       StreamWaker waker) -> absl::StatusOr<StreamPull<Response>> {
                  MutexLock lock(mutex_);
                  watchers_.Add(std::move(waker));
                  return [this, known = request.service().empty(), said = -1]() mutable {
                    MutexLock inner(mutex_);
                    if (said == static_cast<int>(serving_)) return StreamStep<Response>::Wait();
                    // An unknown service stays unknown.
                    if (!known && said >= 0) return StreamStep<Response>::Wait();
                    said = serving_;
                    return StreamStep<Response>::Message(Status(known, serving_));
                  };
                });
}

void HealthService::SetServing(bool serving) {
  MutexLock lock(mutex_);
  serving_ = serving;
  watchers_.WakeAll();
}

}  // namespace penstock
