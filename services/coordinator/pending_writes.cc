#include "services/coordinator/pending_writes.h"

#include <algorithm>
#include <utility>

namespace penstock {

void PendingWrites::Add(SaveJob save) {
  SaveJob& latest = jobs_[save.record.summary().job_id()];
  if (save.idempotency_key.empty()) {
    save.idempotency_key = std::move(latest.idempotency_key);
  }
  latest = std::move(save);
}

void PendingWrites::Add(PublishEvent event) {
  events_.push_back(std::move(event));
  if (events_.size() > kEventsMax) {
    const auto oldest = std::find_if(events_.begin(), events_.end(), [](const PublishEvent& e) {
      return !e.event.has_state_changed();
    });
    if (oldest != events_.end()) {
      events_.erase(oldest);
      ++dropped_events_;
    }
  }
}

void PendingWrites::AddTimeline(const std::string& job_id, v1::GetTimelineResponse timeline) {
  timelines_[job_id] = {job_id, std::move(timeline)};
}

const v1::GetJobResponse* PendingWrites::FindRecord(const std::string& job_id) const {
  const auto found = jobs_.find(job_id);
  return found == jobs_.end() ? nullptr : &found->second.record;
}

std::vector<StateStore::Change> PendingWrites::Changes() const {
  std::vector<StateStore::Change> changes;
  for (const auto& [job_id, save] : jobs_) {
    changes.push_back({.job = &save});
  }
  for (const PublishEvent& event : events_) {
    changes.push_back({.event = &event});
  }
  for (const auto& [job_id, timeline] : timelines_) {
    changes.push_back({.timeline = &timeline});
  }
  for (const auto& [key, keep] : layer_times_) {
    changes.push_back({.layer_times = &keep});
  }
  return changes;
}

std::deque<PublishEvent> PendingWrites::Written() {
  jobs_.clear();
  timelines_.clear();
  layer_times_.clear();
  return std::exchange(events_, {});
}

}  // namespace penstock
