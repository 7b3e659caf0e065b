// Metrics as plain values, so that nobody outside this folder knows Prometheus.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace penstock {

struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;
};

// All samples of one name. Names follow Prometheus: penstock_ in front, base units, counters end in
// _total.
struct MetricFamily {
  enum class Kind { kCounter, kGauge };
  Kind kind = Kind::kGauge;
  std::string name;
  std::string help;  // what it means, in a sentence
  std::vector<MetricSample> samples;
};

}  // namespace penstock
