// MetricsEndpoint: answers Prometheus' scrapes at https://ADDRESS/metrics (http without a guard).
//
// Nothing is counted for it on the way: every scrape asks `collect` for the values of the moment, on
// one of the server's threads.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/http/guard.h"
#include "services/http/server.h"
#include "services/metrics/metric.h"
#include "services/rpc/address.h"

namespace penstock {

class MetricsEndpoint {
 public:
  using Collect = std::function<std::vector<MetricFamily>()>;

  // Listens on `address` (port 0: any free one) until destroyed. `collect` may be called from any
  // thread, one scrape at a time; it must outlive the endpoint.
  // Errors: FailedPrecondition if the address is taken or not ours. `guard`: see HttpGuard; null:
  // anybody who can connect may scrape.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Listen(
      const HostPort& address, const std::shared_ptr<HttpGuard>& guard, Collect collect);
  ~MetricsEndpoint();

  // With the port that was found.
  HostPort address() const;

 private:
  explicit MetricsEndpoint(std::unique_ptr<HttpServer> server);
  const std::unique_ptr<HttpServer> server_;
};

// Returns the endpoint as a part of a server that answers more. `collect` as above.
HttpRoute MetricsRoute(MetricsEndpoint::Collect collect);

}  // namespace penstock
