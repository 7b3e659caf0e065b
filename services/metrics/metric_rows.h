// MetricRow: a metric in one place: its name, what it means, and where its value comes from.
//
//   {kGauge, "penstock_stage_memory_bytes", "", "Device memory ...", Value<&v1::StageReport::memory_bytes>}
//
// The catalogue takes the description from a row, a scrape the value.
//
// Plain values; pure functions.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/v1/cluster.pb.h"
#include "services/metrics/catalog.h"
#include "services/metrics/metric_set.h"

namespace penstock {

// Takes the values of one row.
class MetricSamples {
 public:
  // `labels`: the values of those that all rows of a table have. REQUIRES: `metrics` outlives it.
  MetricSamples(const char* name, const std::vector<std::string>& labels, MetricSet& metrics)
      : name_(name), labels_(labels), metrics_(metrics) {}

  template <typename Number>
  void Add(Number value) {
    metrics_.Add(name_, labels_, static_cast<double>(value));
  }
  // With the value of the row's own label.
  template <typename Number>
  void Add(const std::string& label, Number value) {
    std::vector<std::string> labels = labels_;
    labels.push_back(label);
    metrics_.Add(name_, std::move(labels), static_cast<double>(value));
  }
  void Add(const v1::DelayCounts& delays) {
    metrics_.AddHistogram(name_, labels_,
                          {.counts = {delays.microbatches().begin(), delays.microbatches().end()},
                           .sum = static_cast<double>(delays.sum())});
  }

 private:
  const char* const name_;
  const std::vector<std::string>& labels_;
  MetricSet& metrics_;
};

template <typename Source>
struct MetricRow {
  MetricKind kind;
  const char* name;   // as MetricDescription's
  const char* label;  // its own, after those of the table; "": it has none
  const char* help;
  void (*add)(const Source&, MetricSamples&);
};

// ---- Where values come from. A path is a member, or a getter, of the source, then one of what that gives, and so on.

template <auto First, auto... Rest, typename Source>
decltype(auto) Follow(const Source& source) {
  if constexpr (sizeof...(Rest) == 0) {
    return std::invoke(First, source);
  } else {
    return Follow<Rest...>(std::invoke(First, source));
  }
}

// The metric is the number or the distribution at the path.
template <auto... Path>
constexpr auto Value =
    [](const auto& source, MetricSamples& samples) { samples.Add(Follow<Path...>(source)); };

// The metric is there only if its value is known.
template <auto Has, auto Get>
constexpr auto ValueIf = [](const auto& source, MetricSamples& samples) {
  if (std::invoke(Has, source)) samples.Add(std::invoke(Get, source));
};

// ---- What tables are for.

template <typename Source>
std::vector<MetricDescription> Describe(const std::vector<const char*>& labels,
                                        const std::vector<MetricRow<Source>>& rows) {
  std::vector<MetricDescription> descriptions;
  for (const MetricRow<Source>& row : rows) {
    MetricDescription& metric =
        descriptions.emplace_back(MetricDescription{row.kind, row.name, labels, row.help});
    if (row.label[0] != '\0') metric.labels.push_back(row.label);
  }
  return descriptions;
}

template <typename Source>
void AddRows(const std::vector<MetricRow<Source>>& rows, const Source& source,
             const std::vector<std::string>& labels, MetricSet& metrics) {
  for (const MetricRow<Source>& row : rows) {
    MetricSamples samples(row.name, labels, metrics);
    row.add(source, samples);
  }
}

}  // namespace penstock
