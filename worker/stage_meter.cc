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
  f(index++, counts.resident_live);
  f(index++, counts.resident_peak);
  f(index++, counts.offloaded_live);
  f(index++, counts.offloaded_peak);
}

template <typename Delays, typename Function>
void ForEachDelay(Delays& delays, Function f) {
  int index = 0;
  for (auto* counts : {&delays.staleness, &delays.version_drift}) {
    for (auto& microbatches : counts->microbatches) f(index++, microbatches);
  }
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
  for (int kind = 0; kind < kActionKinds; ++kind) durations_.emplace_back(duration_samples_max);
  Publish(StageCounts(), StageDelays());
  PublishLive(StageCounts());
}

void StageMeter::AddSpan(const Span& span) {
  if (span.lane == Lane::kWait) {
    waiting_ns_[static_cast<int>(span.wait)].Add(span.duration_ns());
  } else {
    lane_ns_[static_cast<int>(span.lane)].Add(span.duration_ns());
  }
}

void StageMeter::Publish(const StageCounts& counts, const StageDelays& delays) {
  ForEachField(counts, [this](int index, int64_t value) { counts_[index].Set(value); });
  ForEachDelay(delays, [this](int index, int64_t value) { delays_[index].Set(value); });
}

void StageMeter::EndStep(int64_t window_ns) {
  const int64_t step = steps_.value() + 1;  // mark 0 is where training began
  StepMark& mark = marks_[step % static_cast<int64_t>(marks_.size())];
  mark.window_ns.Set(window_ns);
  mark.busy_ns.Set(lane_ns(Lane::kCompute));
  steps_.Set(step);
}

std::optional<double> StageMeter::RecentBubble() const {
  const int64_t last = steps_.value();
  const int64_t first = std::max<int64_t>(0, last - kBubbleSteps);
  const auto size = static_cast<int64_t>(marks_.size());
  const int64_t window_ns =
      marks_[last % size].window_ns.value() - marks_[first % size].window_ns.value();
  const int64_t busy_ns =
      marks_[last % size].busy_ns.value() - marks_[first % size].busy_ns.value();
  if (last == 0 || window_ns <= 0) return std::nullopt;
  // On a GPU busy time is counted a little later than it passes.
  return std::clamp(1.0 - static_cast<double>(busy_ns) / static_cast<double>(window_ns), 0.0, 1.0);
}

StageCounts StageMeter::counts() const {
  StageCounts counts;
  ForEachField(counts, [this](int index, int64_t& value) { value = counts_[index].value(); });
  return counts;
}

StageDelays StageMeter::delays() const {
  StageDelays delays;
  ForEachDelay(delays, [this](int index, int64_t& value) { value = delays_[index].value(); });
  return delays;
}

}  // namespace penstock
