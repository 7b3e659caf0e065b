#include "model/metric.h"

#include <algorithm>

#include "model/metrics/list.h"

namespace penstock {
namespace {

constexpr const Metric* kMetrics[] = {
#define PENSTOCK_METRIC_ADDRESS(Name) &metrics::k##Name,
    PENSTOCK_METRICS(PENSTOCK_METRIC_ADDRESS)
#undef PENSTOCK_METRIC_ADDRESS
};

}  // namespace

absl::Span<const Metric* const> AllMetrics() { return kMetrics; }

const Metric* FindMetric(absl::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kMetrics), std::end(kMetrics),
                   [&](const Metric* metric) { return metric->name == name; });
  return found == std::end(kMetrics) ? nullptr : *found;
}

std::vector<const Metric*> MetricsOf(const ModelGraph& model) {
  const int64_t classes = model.loss().classes;
  std::vector<const Metric*> metrics;
  std::copy_if(std::begin(kMetrics), std::end(kMetrics), std::back_inserter(metrics),
               [classes](const Metric* metric) { return classes >= metric->classes_min; });
  return metrics;
}

}  // namespace penstock
