// MetricSet: samples put together to families, as the catalogue describes them.
//
//   MetricSet metrics;
//   metrics.Add("penstock_jobs", {"running"}, 3);
//   std::vector<MetricFamily> families = metrics.Take();
//
// Thread-compatible.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "services/metrics/metric.h"

namespace penstock {

struct MetricDescription;

class MetricSet {
 public:
  // Adds a sample; `labels` are the values of the described labels, in their order.
  // REQUIRES: the catalogue has a counter or gauge of this name, with this many labels.
  void Add(absl::string_view name, std::vector<std::string> labels, double value);
  // REQUIRES: the same of a histogram.
  void AddHistogram(absl::string_view name, std::vector<std::string> labels, MetricHistogram value);

  // The families that have samples, by name. The set is empty then.
  std::vector<MetricFamily> Take();

 private:
  MetricSample& AddSample(absl::string_view name, std::vector<std::string> labels, bool histogram);

  std::map<const MetricDescription*, MetricFamily> families_;
};

}  // namespace penstock
