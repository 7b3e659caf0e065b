#include "coordinator/checkpoint_tracker.h"

#include <algorithm>
#include <utility>

namespace penstock {

std::optional<CheckpointTracker::Complete> CheckpointTracker::Saved(int32_t worker,
                                                                    const v1::LayersSaved& saved) {
  const int64_t step = saved.step();
  if (IsOver(step) || committing_.count(step) > 0) {
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
  return SetOver(step);
}

void CheckpointTracker::Committed(int64_t step) {
  committing_.erase(step);
  SetOver(step);
}

bool CheckpointTracker::SetOver(int64_t step) {
  if (IsOver(step)) return false;
  over_.insert(step);
  if (over_.size() > kOverMax) all_over_ = over_.extract(over_.begin()).value();
  return true;
}

}  // namespace penstock
