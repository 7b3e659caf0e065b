// The catalogue: every metric that a Penstock program exports. The endpoints' families and docs/metrics.md
// come from it, and tests hold names and labels to Prometheus' rules.
//
// To add one: a row in the table of its subject (stage_metrics.cc, run_metrics.cc, cluster_metrics.cc,
// process_metrics.cc). Then UPDATE_GOLDEN=1 ctest -R services_metrics_test.
//
// Constants; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/metrics/metric.h"

namespace penstock {

enum class MetricProgram { kWorker, kCoordinator, kBoth };

// A subject that a group of metrics is about: the rows of one table of docs/metrics.md.
struct MetricDescription {
  MetricKind kind;
  // penstock_ in front (process_ of what every Prometheus client exports), base units, counters end in _total.
  const char* name;
  std::vector<std::string> labels;
  const char* help;  // a sentence or two
};

struct MetricGroup {
  const char* title;
  const char* about;  // what holds for all of them; may be empty
  MetricProgram program;
  std::vector<MetricDescription> metrics;
};

// In the order of docs/metrics.md.
const std::vector<MetricGroup>& MetricCatalog();

// Null if there is no such metric. A histogram has its own name, without _bucket, _sum and _count.
const MetricDescription* FindMetric(absl::string_view name);

// The values of a label, for docs/metrics.md: a closed set of words, or what they name.
struct LabelDescription {
  const char* name;
  const char* meaning;
};
const std::vector<LabelDescription>& MetricLabels();

// docs/metrics.md but for what is written by hand in it (docs/monitoring.md has that).
std::string MetricsReference();

}  // namespace penstock
