// Metrics as plain values, so that no code outside this folder knows Prometheus.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

enum class MetricKind { kCounter, kGauge, kHistogram };

// Counts observations of 0, 1, 2, ...; the last count is of all larger ones.
struct MetricHistogram {
  std::vector<int64_t> counts;
  double sum = 0;  // of the observed values
};

struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;           // of a counter or gauge
  MetricHistogram histogram;  // of a histogram
};

// All samples of one name. The meaning of each name is in catalog.h.
struct MetricFamily {
  using Kind = MetricKind;
  Kind kind = Kind::kGauge;
  std::string name;
  std::string help;  // what it means, in a sentence
  std::vector<MetricSample> samples;
};

}  // namespace penstock
