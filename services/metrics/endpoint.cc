#include "services/metrics/endpoint.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "services/http/server.h"

namespace penstock {
namespace {

constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

prometheus::MetricFamily Convert(MetricFamily family) {
  const bool counter = family.kind == MetricFamily::Kind::kCounter;
  prometheus::MetricFamily result;
  result.name = std::move(family.name);
  result.help = std::move(family.help);
  result.type = counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
  for (MetricSample& sample : family.samples) {
    prometheus::ClientMetric& metric = result.metric.emplace_back();
    for (auto& [name, value] : sample.labels) {
      metric.label.push_back({std::move(name), std::move(value)});
    }
    (counter ? metric.counter.value : metric.gauge.value) = sample.value;
  }
  return result;
}

std::string TextOf(std::vector<MetricFamily> families) {
  std::vector<prometheus::MetricFamily> converted;
  for (MetricFamily& family : families) converted.push_back(Convert(std::move(family)));
  return prometheus::TextSerializer().Serialize(converted);
}

}  // namespace

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
            return HttpContent{kContentType, TextOf(std::move(families))};
          }};
}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Listen(const HostPort& address,
                                                                         Collect collect) {
  absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Start({.listen = address, .routes = {MetricsRoute(std::move(collect))}});
  PENSTOCK_RETURN_IF_ERROR(Annotate(server.status(), "metrics"));
  return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(*std::move(server)));
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}

MetricsEndpoint::~MetricsEndpoint() = default;

HostPort MetricsEndpoint::address() const { return server_->address(); }

}  // namespace penstock
