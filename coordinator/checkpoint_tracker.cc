#include "coordinator/checkpoint_tracker.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/string_view.h"

namespace penstock {

void CheckpointTracker::Complete::Add(const v1::LayersSaved& saved) {
  step = saved.step();
  files.insert(files.end(), saved.files().begin(), saved.files().end());
  attached.insert(attached.end(), saved.attached().begin(), saved.attached().end());
  layers.insert(layers.end(), saved.layers().begin(), saved.layers().end());
}

void CheckpointTracker::Complete::Sort() {
  std::sort(files.begin(), files.end(), [](const v1::SavedFile& a, const v1::SavedFile& b) {
    return std::tuple(a.layer(), absl::string_view(a.name())) <
           std::tuple(b.layer(), absl::string_view(b.name()));
  });
  std::sort(layers.begin(), layers.end(), [](const v1::LayerDigest& a, const v1::LayerDigest& b) {
    return a.layer() < b.layer();
  });
}

CheckpointTracker::Parts* CheckpointTracker::Answer(int32_t worker, int64_t step) {
  if (IsOver(step)) return nullptr;
  Parts& parts = parts_[step];
  return parts.workers.insert(worker).second ? &parts : nullptr;
}

std::optional<CheckpointTracker::Parts> CheckpointTracker::TakeAnswered(int64_t step) {
  const auto found = parts_.find(step);
  if (static_cast<int32_t>(found->second.workers.size()) < workers_) return std::nullopt;
  Parts parts = std::move(found->second);
  parts_.erase(found);
  over_.insert(step);
  if (over_.size() > kOverMax) all_over_ = over_.extract(over_.begin()).value();
  if (parts.failed) GiveUp(step);
  return parts;
}

void CheckpointTracker::GiveUp(int64_t step) {
  given_up_ = std::max(given_up_.value_or(step), step);
}

std::optional<CheckpointTracker::Complete> CheckpointTracker::Saved(int32_t worker,
                                                                    const v1::LayersSaved& saved) {
  const int64_t step = saved.step();
  Parts* const answered = Answer(worker, step);
  if (answered == nullptr) return std::nullopt;
  answered->complete.Add(saved);
  std::optional<Parts> parts = TakeAnswered(step);
  if (!parts.has_value() || parts->failed) return std::nullopt;
  Complete complete = std::move(parts->complete);
  complete.Sort();
  committing_.insert(step);
  return complete;
}

bool CheckpointTracker::Failed(int32_t worker, int64_t step) {
  Parts* const parts = Answer(worker, step);
  if (parts == nullptr) return false;
  const bool is_first = !std::exchange(parts->failed, true);
  TakeAnswered(step);
  return is_first;
}

void CheckpointTracker::NotCommitted(int64_t step) {
  committing_.erase(step);
  GiveUp(step);
}

}  // namespace penstock
