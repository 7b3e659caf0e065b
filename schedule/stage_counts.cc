#include "schedule/stage_counts.h"

namespace penstock {

void StalenessCount::Add(const StalenessCount& more) {
  updates += more.updates;
  max = std::max(max, more.max);
  sum += more.sum;
  microbatches += more.microbatches;
}

void AddRange(const StageCounts& range, StageCounts& total) {
  total.staleness.Add(range.staleness);
  total.version_drift.Add(range.version_drift);
  total.versions_live = range.versions_live;
  total.versions_peak = std::max(total.versions_peak, range.versions_peak);
  total.moved_copies = std::max(total.moved_copies, range.moved_copies);
  total.activations_live = range.activations_live;
  total.activations_peak = std::max(total.activations_peak, range.activations_peak);
  total.resident_live = range.resident_live;
  total.resident_peak = std::max(total.resident_peak, range.resident_peak);
  total.offloaded_live = range.offloaded_live;
  total.offloaded_peak = std::max(total.offloaded_peak, range.offloaded_peak);
  total.streamed_peak = std::max(total.streamed_peak, range.streamed_peak);
}

}  // namespace penstock
