#include "coordinator/checkpoint_tracker.h"

#include <algorithm>
#include <utility>

namespace penstock {

std::optional<CheckpointTracker::Complete> CheckpointTracker::Saved(int32_t worker,
                                                                    const v1::LayersSaved& saved) {
  const int64_t step = saved.step();
  if (failed_.count(step) > 0 || committing_.count(step) > 0 || committed_.count(step) > 0) {
    return std::nullopt;
  }
  Parts& parts = parts_[step];
  if (!parts.workers.insert(worker).second) {
    return std::nullopt;
  }
  Complete& complete = parts.complete;
  complete.files.insert(complete.files.end(), saved.files().begin(), saved.files().end());
  complete.layers.insert(complete.layers.end(), saved.layers().begin(), saved.layers().end());
  if (static_cast<int32_t>(parts.workers.size()) < workers_) {
    return std::nullopt;
  }
  Complete result = std::move(complete);
  result.step = step;
  std::sort(
      result.layers.begin(), result.layers.end(),
      [](const v1::LayerDigest& a, const v1::LayerDigest& b) { return a.layer() < b.layer(); });
  parts_.erase(step);
  committing_.insert(step);
  return result;
}

bool CheckpointTracker::Failed(int64_t step) {
  parts_.erase(step);
  committing_.erase(step);
  return failed_.insert(step).second;
}

void CheckpointTracker::Committed(int64_t step) {
  committing_.erase(step);
  committed_.insert(step);
}

}  // namespace penstock
