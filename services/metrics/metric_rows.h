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

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "penstock/v1/cluster.pb.h"
#include "services/metrics/catalog.h"
#include "services/metrics/metric_set.h"

namespace penstock {

// Takes the values of one row.
class MetricSamples {
 public:
  // `labels`: the values of those that all rows of a table have. REQUIRES: `labels` and `metrics` outlive it.
  MetricSamples(const char* name, const std::vector<std::string>& labels, MetricSet& metrics)
      : name_(name), labels_(labels), metrics_(metrics) {}

  template <typename Number>
  void Add(Number value) {
    metrics_.Add(name_, labels_, static_cast<double>(value));
  }
  // With the values of the row's own labels.
  template <typename Number>
  void Add(std::vector<std::string> own, Number value) {
    metrics_.Add(name_, WithTables(std::move(own)), static_cast<double>(value));
  }
  void Add(const v1::DelayCounts& delays) { Add(std::vector<std::string>{}, delays); }
  void Add(std::vector<std::string> own, const v1::DelayCounts& delays) {
    metrics_.AddHistogram(name_, WithTables(std::move(own)),
                          {.counts = {delays.microbatches().begin(), delays.microbatches().end()},
                           .sum = static_cast<double>(delays.sum())});
  }

 private:
  std::vector<std::string> WithTables(std::vector<std::string> own) const {
    own.insert(own.begin(), labels_.begin(), labels_.end());
    return own;
  }

  const char* const name_;
  const std::vector<std::string>& labels_;
  MetricSet& metrics_;
};

template <typename Source>
struct MetricRow {
  MetricKind kind;
  const char* name;    // as MetricDescription's
  const char* labels;  // its own, after those of the table, with spaces between
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

// `labels`: those that all rows have, with spaces between.
template <typename Source>
std::vector<MetricDescription> Describe(const std::string& labels,
                                        const std::vector<MetricRow<Source>>& rows) {
  std::vector<MetricDescription> descriptions;
  descriptions.reserve(rows.size());
  for (const MetricRow<Source>& row : rows) {
    descriptions.push_back(
        {row.kind, row.name,
         absl::StrSplit(absl::StrCat(labels, " ", row.labels), ' ', absl::SkipEmpty()), row.help});
  }
  return descriptions;
}

// One table of docs/metrics.md from several.
inline std::vector<MetricDescription> Joined(
    const std::vector<std::vector<MetricDescription>>& tables) {
  std::vector<MetricDescription> joined;
  for (const auto& table : tables) joined.insert(joined.end(), table.begin(), table.end());
  return joined;
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
