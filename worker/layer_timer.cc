#include "worker/layer_timer.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<LayerTimer>> LayerTimer::Create(Backend& backend, Clock& clock,
                                                               int layers, int entries_max) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<DeviceMarks> marks, backend.MakeMarks(entries_max));
  return absl::WrapUnique(new LayerTimer(backend, clock, layers, std::move(marks), entries_max));
}

LayerTimer::LayerTimer(Backend& backend, Clock& clock, int layers,
                       std::unique_ptr<DeviceMarks> marks, int entries_max)
    : backend_(backend), clock_(clock), marks_(std::move(marks)) {
  entries_.reserve(entries_max);
  for (std::vector<int64_t>& of_work : times_) of_work.resize(layers);
}

void LayerTimer::Begin(Work work, int layer) { Add(work, layer); }

void LayerTimer::Enter(int layer) {
  if (entries_.back().layer != layer) Add(entries_.back().work, layer);
}

void LayerTimer::End() { Add(entries_.back().work, -1); }

void LayerTimer::Add(Work work, int layer) {
  PENSTOCK_CHECK(entries_.size() < entries_.capacity());
  if (marks_ != nullptr) marks_->Put(static_cast<int>(entries_.size()), DeviceStream::kCompute);
  entries_.push_back({work, layer, marks_ == nullptr ? clock_.MonotonicNs() : 0});
}

int64_t LayerTimer::ElapsedNs(int from, int to) const {
  if (marks_ != nullptr) return marks_->ElapsedNs(from, to);
  return entries_[to].now_ns - entries_[from].now_ns;
}

absl::StatusOr<const LayerTimer::Times*> LayerTimer::Take() {
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  for (std::vector<int64_t>& of_work : times_) std::fill(of_work.begin(), of_work.end(), 0);
  for (int i = 0; i + 1 < static_cast<int>(entries_.size()); ++i) {
    const Entry& entry = entries_[i];
    if (entry.layer >= 0) times_[entry.work][entry.layer] += ElapsedNs(i, i + 1);
  }
  entries_.clear();
  return &times_;
}

}  // namespace penstock
