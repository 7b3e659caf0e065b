#include "services/coordinator/job_requests.h"

#include "base/status.h"

namespace penstock {

absl::StatusOr<v1::SubmitJobResponse> TakeJob(absl::StatusOr<Submission> submission,
                                              const std::optional<TraceContext>& trace,
                                              Coordinator& coordinator, EventLoop& loop, Now now) {
  PENSTOCK_RETURN_IF_ERROR(submission.status());
  v1::SubmitJobResponse response;
  response.set_job_id(submission->job_id);
  if (submission->record.has_value()) {
    if (trace.has_value()) {
      submission->record->record.set_traceparent(FormatTraceparent(*trace));
    }
    PENSTOCK_RETURN_IF_ERROR(loop.Keep(&*submission->record));
    coordinator.AddJob(*submission->record, now);
  }
  return response;
}

absl::StatusOr<v1::CancelJobResponse> CancelJob(const std::string& job_id, Coordinator& coordinator,
                                                EventLoop& loop, Now now) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<SaveJob> cancelled,
                            coordinator.CheckCancel(job_id));
  // Also if it has ended: a restart must find that, too.
  PENSTOCK_RETURN_IF_ERROR(loop.Keep(cancelled.has_value() ? &*cancelled : nullptr));
  return coordinator.CancelJob(job_id, now);
}

}  // namespace penstock
