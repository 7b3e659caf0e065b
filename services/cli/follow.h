// FollowJob: watches a job to its end, shows its progress, and gives its result.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "services/cli/console.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/interrupt.h"

namespace penstock {

struct FollowOptions {
  // The effect of the first interrupt: cancel the job and wait until it has drained, or leave it alone
  // and return. A second interrupt always returns at once.
  enum class OnInterrupt { kCancelJob, kDetach };
  OnInterrupt on_interrupt = OnInterrupt::kCancelJob;
  // Seen with every event; once it is true the job is drained, as on an interrupt.
  std::function<bool(const v1::JobEvent&)> enough = [](const v1::JobEvent&) { return false; };
  // Looked at ten times a second; an error ends the watch with it.
  std::function<absl::Status()> health = [] { return absl::OkStatus(); };
};

// The job as it ended.
// A coordinator that goes away is waited for (job_watch.h).
// Errors: Cancelled (interrupted before the job had ended), Unavailable (the coordinator stays away), and
// those of `health`.
absl::StatusOr<v1::GetJobResponse> FollowJob(CoordinatorClient& client, const std::string& job_id,
                                             Interrupt& interrupt, Console& console, Clock& clock,
                                             const FollowOptions& options);

// The status of a job's end decides the exit code: OK, Failed with its error, or Cancelled.
absl::Status StatusOfEnd(const v1::GetJobResponse& job);

}  // namespace penstock
