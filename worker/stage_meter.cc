#include "worker/stage_meter.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {
namespace {

// One list of the fields for both directions. `f(index, field)`.
template <typename Counts, typename Function>
void ForEachField(Counts& counts, Function f) {
  int index = 0;
  for (auto* count : {&counts.staleness, &counts.version_drift}) {
    f(index++, count->updates);
    f(index++, count->max);
    f(index++, count->sum);
    f(index++, count->microbatches);
  }
  f(index++, counts.versions_live);
  f(index++, counts.versions_peak);
  f(index++, counts.moved_copies);
  f(index++, counts.activations_live);
  f(index++, counts.activations_peak);
}

}  // namespace

void DurationMeter::Add(int64_t duration_ns) {
  samples_[count_.value() % static_cast<int64_t>(samples_.size())].Set(duration_ns);
  total_ns_.Add(duration_ns);
  count_.Add(1);
}

int64_t DurationMeter::MedianNs() const {
  const int64_t size = std::min<int64_t>(count_.value(), static_cast<int64_t>(samples_.size()));
  if (size == 0) return 0;
  std::vector<int64_t> values;
  values.reserve(size);
  for (int64_t i = 0; i < size; ++i) values.push_back(samples_[i].value());
  std::nth_element(values.begin(), values.begin() + size / 2, values.end());
  return values[size / 2];
}

StageMeter::StageMeter(int64_t duration_samples_max) {
  PENSTOCK_CHECK(duration_samples_max > 0);
  for (int op = 0; op < kOps; ++op) durations_.emplace_back(duration_samples_max);
  Publish(StageCounts(), 0);
}

void StageMeter::AddSpan(const Span& span) {
  if (span.lane == Lane::kWait) {
    waiting_ns_[static_cast<int>(span.wait)].Add(span.duration_ns());
  } else {
    lane_ns_[static_cast<int>(span.lane)].Add(span.duration_ns());
  }
}

void StageMeter::Publish(const StageCounts& counts, int64_t updates) {
  ForEachField(counts, [this](int index, int64_t value) { counts_[index].Set(value); });
  updates_.Set(updates);
}

StageCounts StageMeter::counts() const {
  StageCounts counts;
  ForEachField(counts, [this](int index, int64_t& value) { value = counts_[index].value(); });
  return counts;
}

}  // namespace penstock
