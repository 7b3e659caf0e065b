// What users change of jobs: it is in the store before it is done and answered, so a coordinator that starts again knows it.
//
// Plain functions, for questions on the loop's thread (EventLoop::Ask).
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/trace_context.h"
#include "coordinator/coordinator.h"
#include "services/coordinator/event_loop.h"

namespace penstock {

// Takes the job, only if it can be kept. `submission`: of CheckSubmission or CheckProfile, right before. `trace`: of its
// submission. Errors: those of `submission`, and of EventLoop::Keep.
absl::StatusOr<v1::SubmitJobResponse> TakeJob(absl::StatusOr<Submission> submission,
                                              const std::optional<TraceContext>& trace,
                                              Coordinator& coordinator, EventLoop& loop, Now now);

// Cancels the job, only if that can be kept. Errors: NotFound, and those of EventLoop::Keep.
absl::StatusOr<v1::CancelJobResponse> CancelJob(const std::string& job_id, Coordinator& coordinator,
                                                EventLoop& loop, Now now);

}  // namespace penstock
