#include "services/metrics/metric_set.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "services/metrics/catalog.h"

namespace penstock {

MetricSample& MetricSet::AddSample(absl::string_view name, std::vector<std::string> labels,
                                   bool histogram) {
  const MetricDescription* description = FindMetric(name);
  PENSTOCK_CHECK(description != nullptr);
  PENSTOCK_CHECK(description->labels.size() == labels.size());
  PENSTOCK_CHECK((description->kind == MetricKind::kHistogram) == histogram);
  MetricFamily& family = families_[description];
  if (family.name.empty()) {
    family.kind = description->kind;
    family.name = description->name;
    family.help = description->help;
  }
  MetricSample& sample = family.samples.emplace_back();
  for (size_t i = 0; i < labels.size(); ++i) {
    sample.labels.emplace_back(description->labels[i], std::move(labels[i]));
  }
  return sample;
}

void MetricSet::Add(absl::string_view name, std::vector<std::string> labels, double value) {
  AddSample(name, std::move(labels), /*histogram=*/false).value = value;
}

void MetricSet::AddHistogram(absl::string_view name, std::vector<std::string> labels,
                             MetricHistogram value) {
  AddSample(name, std::move(labels), /*histogram=*/true).histogram = std::move(value);
}

std::vector<MetricFamily> MetricSet::Take() {
  std::vector<MetricFamily> families;
  for (auto& [description, family] : std::exchange(families_, {})) {
    families.push_back(std::move(family));
  }
  std::sort(families.begin(), families.end(),
            [](const MetricFamily& a, const MetricFamily& b) { return a.name < b.name; });
  return families;
}

}  // namespace penstock
