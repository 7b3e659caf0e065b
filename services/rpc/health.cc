#include "services/rpc/health.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "services/rpc/server.h"

namespace penstock {
namespace {

using Service = grpc::health::v1::Health::AsyncService;
using Request = grpc::health::v1::HealthCheckRequest;
using Response = grpc::health::v1::HealthCheckResponse;

using Statuses = std::map<std::string, bool>;

Response::ServingStatus StatusOf(const Statuses& serving, const std::string& name) {
  const auto known = serving.find(name);
  if (known == serving.end()) return Response::SERVICE_UNKNOWN;
  return known->second ? Response::SERVING : Response::NOT_SERVING;
}

Response Answer(Response::ServingStatus status) {
  Response response;
  response.set_status(status);
  return response;
}

}  // namespace

void HealthService::AddTo(RpcServer& server) {
  Service& service = server.AddService<Service>(Callers::kProbes);
  server.Unary(service, &Service::RequestCheck,
               [this](const Request& request, const CallInfo&) -> absl::StatusOr<Response> {
                 MutexLock lock(mutex_);
                 const Response::ServingStatus status = StatusOf(serving_, request.service());
                 if (status == Response::SERVICE_UNKNOWN) {
                   return absl::NotFoundError(absl::StrCat("no health of ", request.service(),
                                                           " alone; ask for the whole server"));
                 }
                 return Answer(status);
               });
  server.Stream(service, &Service::RequestWatch,
                [this](const Request& request, const CallInfo&,
                       StreamWaker waker) -> absl::StatusOr<StreamPull<Response>> {
                  MutexLock lock(mutex_);
                  watchers_.Add(std::move(waker));
                  return [this, name = request.service(), said = -1]() mutable {
                    MutexLock inner(mutex_);
                    const Response::ServingStatus status = StatusOf(serving_, name);
                    if (said == static_cast<int>(status)) return StreamStep<Response>::Wait();
                    said = static_cast<int>(status);
                    return StreamStep<Response>::Message(Answer(status));
                  };
                });
}

void HealthService::SetPartServing(const std::string& name, bool serving) {
  MutexLock lock(mutex_);
  serving_[name] = serving;
  watchers_.WakeAll();
}

}  // namespace penstock
