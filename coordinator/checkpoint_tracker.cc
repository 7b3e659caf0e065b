#include "coordinator/checkpoint_tracker.h"

#include <algorithm>
#include <utility>

namespace penstock {

CheckpointTracker::Parts* CheckpointTracker::Answer(int32_t worker, int64_t step) {
  if (answered_.count(step) > 0) return nullptr;
  Parts& parts = parts_[step];
  return parts.workers.insert(worker).second ? &parts : nullptr;
}

std::optional<CheckpointTracker::Complete> CheckpointTracker::TakeAnswered(int64_t step) {
  const auto parts = parts_.find(step);
  if (static_cast<int32_t>(parts->second.workers.size()) < workers_) return std::nullopt;
  Complete complete = std::move(parts->second.complete);
  complete.step = step;
  parts_.erase(parts);
  answered_.insert(step);
  return complete;
}

void CheckpointTracker::GiveUp(int64_t step) {
  given_up_ = std::max(given_up_.value_or(step), step);
}

std::optional<CheckpointTracker::Complete> CheckpointTracker::Saved(int32_t worker,
                                                                    const v1::LayersSaved& saved) {
  const int64_t step = saved.step();
  Parts* const parts = Answer(worker, step);
  if (parts == nullptr) return std::nullopt;
  Complete& complete = parts->complete;
  complete.files.insert(complete.files.end(), saved.files().begin(), saved.files().end());
  complete.layers.insert(complete.layers.end(), saved.layers().begin(), saved.layers().end());
  std::optional<Complete> result = TakeAnswered(step);
  if (!result.has_value()) return std::nullopt;
  if (failed_.count(step) > 0) {
    GiveUp(step);
    return std::nullopt;
  }
  std::sort(
      result->layers.begin(), result->layers.end(),
      [](const v1::LayerDigest& a, const v1::LayerDigest& b) { return a.layer() < b.layer(); });
  committing_.insert(step);
  return result;
}

bool CheckpointTracker::Failed(int32_t worker, int64_t step) {
  if (Answer(worker, step) == nullptr) return false;
  const bool is_first = failed_.insert(step).second;
  if (TakeAnswered(step).has_value()) GiveUp(step);
  return is_first;
}

void CheckpointTracker::Committed(int64_t step) {
  committing_.erase(step);
  committed_.insert(step);
}

void CheckpointTracker::NotCommitted(int64_t step) {
  committing_.erase(step);
  failed_.insert(step);
  GiveUp(step);
}

}  // namespace penstock
