#include "services/coordinator/job_records.h"

#include <utility>

#include "base/status.h"

namespace penstock {

absl::StatusOr<v1::GetJobResponse> FindRecord(const std::string& job_id, Coordinator& coordinator,
                                              StateStore& store, const EventLoop& loop) {
  if (const JobRun* run = coordinator.FindRun(job_id); run != nullptr) {
    return run->Record();
  }
  PENSTOCK_RETURN_IF_ERROR(coordinator.FindSummary(job_id).status());
  // While the store cannot be written, it has what was before.
  if (const v1::GetJobResponse* pending = loop.PendingRecord(job_id); pending != nullptr) {
    return *pending;
  }
  return store.ReadRecord(job_id);
}

absl::StatusOr<FoundTimeline> FindTimeline(const std::string& job_id, Coordinator& coordinator,
                                           StateStore& store, const EventLoop& loop) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::GetJobResponse record,
                            FindRecord(job_id, coordinator, store, loop));
  return FoundTimeline{std::move(record), store.ReadTimeline(job_id)};
}

}  // namespace penstock
