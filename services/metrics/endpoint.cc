#include "services/metrics/endpoint.h"

#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "services/http/server.h"
#include "services/metrics/exposition.h"

namespace penstock {

HttpRoute MetricsRoute(MetricsEndpoint::Collect collect) {
  // Shared by the copies of the handler.
  const auto one_at_a_time = std::make_shared<Mutex>();
  return {"/metrics",
          [collect = std::move(collect),
           one_at_a_time](const HttpRequest&) -> absl::StatusOr<HttpContent> {
            std::vector<MetricFamily> families;
            {
              MutexLock lock(*one_at_a_time);
              families = collect();
            }
            return HttpContent{kExpositionContentType, ExpositionText(std::move(families))};
          }};
}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Listen(
    const HostPort& address, const std::shared_ptr<HttpGuard>& guard, Collect collect) {
  HttpServerOptions options = {.listen = address, .routes = {MetricsRoute(std::move(collect))}};
  HttpGuard::Protect(guard, options);
  absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(std::move(options));
  PENSTOCK_RETURN_IF_ERROR(Annotate(server.status(), "metrics"));
  return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(*std::move(server)));
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}

MetricsEndpoint::~MetricsEndpoint() = default;

HostPort MetricsEndpoint::address() const { return server_->address(); }

}  // namespace penstock
