#include "services/cli/metric_text.h"

#include "absl/strings/str_cat.h"
#include "model/metric.h"
#include "services/cli/text.h"

namespace penstock {

std::string MetricText(const v1::MetricValue& metric) {
  const Metric* known = FindMetric(metric.name());
  return absl::StrCat(known == nullptr ? absl::string_view(metric.name()) : known->label, " ",
                      FormatPercent(metric.value()));
}

std::string MetricsAfterLoss(const MetricValues& metrics) {
  std::string text;
  for (const v1::MetricValue& metric : metrics) {
    absl::StrAppend(&text, ", ", MetricText(metric));
  }
  return text;
}

}  // namespace penstock
