// PendingWrites: everything that has to go into the StateStore and is not there yet.
//
// It is kept small while the store cannot be written, for hours perhaps: of each job one record and one timeline, the
// latest, of each profile its times, and kEventsMax events. Beyond that the oldest events go, but never a change of a
// job's state, of which there are few.
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/effects.h"
#include "services/coordinator/state_store.h"

namespace penstock {

class PendingWrites {
 public:
  static constexpr size_t kEventsMax = 10'000;

  void Add(SaveJob save);
  void Add(PublishEvent event);
  void Add(KeepLayerTimes keep) { layer_times_[keep.key] = std::move(keep); }
  void AddTimeline(const std::string& job_id, v1::GetTimelineResponse timeline);

  bool empty() const {
    return jobs_.empty() && events_.empty() && timelines_.empty() && layer_times_.empty();
  }
  int64_t size() const {
    return static_cast<int64_t>(jobs_.size() + events_.size() + timelines_.size() +
                                layer_times_.size());
  }
  int64_t dropped_events() const { return dropped_events_; }
  // Returns the record of a job among them, or null.
  const v1::GetJobResponse* FindRecord(const std::string& job_id) const;
  // Returns all of it. Valid until the next Add or Written.
  std::vector<StateStore::Change> Changes() const;
  // It is all in the store now. Returns the events, in the order they were added.
  std::deque<PublishEvent> Written();

 private:
  std::map<std::string, SaveJob> jobs_;  // by job id
  std::deque<PublishEvent> events_;
  int64_t dropped_events_ = 0;
  std::map<std::string, StateStore::Change::Timeline> timelines_;  // by job id
  std::map<std::string, KeepLayerTimes> layer_times_;              // by key
};

}  // namespace penstock
