// Families as a map from series to value, for tests.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/metrics/metric.h"

namespace penstock {

// "name{a=b,c=d}" -> value; of a histogram the number of its observations.
inline std::map<std::string, double> Flatten(const std::vector<MetricFamily>& families) {
  std::map<std::string, double> values;
  for (const MetricFamily& family : families) {
    for (const MetricSample& sample : family.samples) {
      double& value = values[absl::StrCat(
          family.name, "{", absl::StrJoin(sample.labels, ",", absl::PairFormatter("=")), "}")];
      value = sample.value;
      for (const int64_t count : sample.histogram.counts) value += static_cast<double>(count);
    }
  }
  return values;
}

}  // namespace penstock
