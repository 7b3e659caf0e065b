#include "services/metrics/endpoint.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/metrics/exposition.h"

namespace penstock {
namespace {

// Scrapes that are served at the same time.
constexpr size_t kHttpThreads = 2;

class Collector final : public prometheus::Collectable {
 public:
  explicit Collector(MetricsEndpoint::Collect collect) : collect_(std::move(collect)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    return ToPrometheus(collect_());
  }

 private:
  const MetricsEndpoint::Collect collect_;
};

}  // namespace

struct MetricsEndpoint::Server {
  Server(const HostPort& address, Collect collect)
      : host(address.host),
        collector(std::make_shared<Collector>(std::move(collect))),
        exposer(std::make_unique<prometheus::Exposer>(address.ToString(), kHttpThreads)) {
    exposer->RegisterCollectable(collector);
  }

  // The HTTP server looks every two seconds whether it should end, or when somebody connects: so
  // somebody connects until it has ended.
  ~Server() {
    std::atomic<bool> ended = false;
    std::thread visitor([&ended, address = ListeningAddress()] {
      while (!ended) {
        (void)CheckCanConnect(address);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
    exposer.reset();
    ended = true;
    visitor.join();
  }

  HostPort ListeningAddress() const {
    const std::vector<int> ports = exposer->GetListeningPorts();
    return {host, ports.empty() ? 0 : ports.front()};
  }

  const std::string host;
  // Shared because the exposer keeps a weak reference.
  const std::shared_ptr<Collector> collector;
  std::unique_ptr<prometheus::Exposer> exposer;
};

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Listen(const HostPort& address,
                                                                         Collect collect) {
  PENSTOCK_RETURN_IF_ERROR(Annotate(CheckCanListen(address), "metrics"));
  try {  // the HTTP server throws what it has against an address
    return std::unique_ptr<MetricsEndpoint>(
        new MetricsEndpoint(std::make_unique<Server>(address, std::move(collect))));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat("metrics: cannot listen on ", address.ToString(), ": ", error.what()));
  }
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<Server> server) : server_(std::move(server)) {}

MetricsEndpoint::~MetricsEndpoint() = default;

HostPort MetricsEndpoint::address() const { return server_->ListeningAddress(); }

}  // namespace penstock
