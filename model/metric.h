// Metric: the share of the valid targets that a model over classes gets right, in one sense of the word.
//
// The forward of a loss finds by target how many classes score higher than it (Tape::ranks, compute/op_kernels.h), and a
// metric says of such a rank whether it is right. So a metric has no kernels, and costs no second forward.
//
// To add one: a file in model/metrics/ and a row in model/metrics/list.h.
//
// Plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/graph.h"

namespace penstock {

struct Metric {
  absl::string_view name;   // in JSON, events and Prometheus: "top5"
  absl::string_view label;  // in text: "top-5"
  int64_t classes_min = 2;  // with fewer it says nothing
  bool (*is_right)(int32_t rank) = nullptr;
};

absl::Span<const Metric* const> AllMetrics();
// Null if there is none of this name.
const Metric* FindMetric(absl::string_view name);
// Those that say something of this model.
std::vector<const Metric*> MetricsOf(const ModelGraph& model);

// What a metric came to.
struct MetricValue {
  std::string name;
  double value = 0.0;  // from 0 to 1
  friend bool operator==(const MetricValue&, const MetricValue&) = default;
};

}  // namespace penstock
