// A job's record and timeline, wherever they are: with its run, on the way to the store, or there.
//
// For the event loop's thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/coordinator.h"
#include "services/coordinator/event_loop.h"
#include "services/coordinator/state_store.h"

namespace penstock {

// Returns the record with the result so far. Errors: NotFound, DataLoss.
absl::StatusOr<v1::GetJobResponse> FindRecord(const std::string& job_id, Coordinator& coordinator,
                                              StateStore& store, const EventLoop& loop);

struct FoundTimeline {
  v1::GetJobResponse record;
  absl::StatusOr<v1::GetTimelineResponse> stored;  // NotFound until the job has ended
};
// Errors: as above.
absl::StatusOr<FoundTimeline> FindTimeline(const std::string& job_id, Coordinator& coordinator,
                                           StateStore& store, const EventLoop& loop);

}  // namespace penstock
