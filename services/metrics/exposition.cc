#include "services/metrics/exposition.h"

#include <prometheus/text_serializer.h>

#include <limits>
#include <utility>

namespace penstock {
namespace {

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return prometheus::MetricType::Counter;
    case MetricKind::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricKind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram ToPrometheus(const MetricHistogram& histogram) {
  prometheus::ClientMetric::Histogram result;
  for (size_t value = 0; value < histogram.counts.size(); ++value) {
    result.sample_count += static_cast<uint64_t>(histogram.counts[value]);
    const bool last = value + 1 == histogram.counts.size();
    const double bound =
        last ? std::numeric_limits<double>::infinity() : static_cast<double>(value);
    result.bucket.push_back({result.sample_count, bound});
  }
  result.sample_sum = histogram.sum;
  return result;
}

prometheus::MetricFamily ToPrometheus(MetricFamily family) {
  prometheus::MetricFamily result;
  result.name = std::move(family.name);
  result.help = std::move(family.help);
  result.type = TypeOf(family.kind);
  for (MetricSample& sample : family.samples) {
    prometheus::ClientMetric& metric = result.metric.emplace_back();
    for (auto& [name, value] : sample.labels) {
      metric.label.push_back({std::move(name), std::move(value)});
    }
    metric.counter.value = metric.gauge.value = sample.value;
    metric.histogram = ToPrometheus(sample.histogram);
  }
  return result;
}

}  // namespace

std::vector<prometheus::MetricFamily> ToPrometheus(std::vector<MetricFamily> families) {
  std::vector<prometheus::MetricFamily> result;
  result.reserve(families.size());
  for (MetricFamily& family : families) result.push_back(ToPrometheus(std::move(family)));
  return result;
}

std::string ExpositionText(std::vector<MetricFamily> families) {
  return prometheus::TextSerializer().Serialize(ToPrometheus(std::move(families)));
}

}  // namespace penstock
