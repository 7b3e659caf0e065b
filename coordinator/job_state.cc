#include "coordinator/job_state.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace penstock {

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

std::string JobStateName(v1::JobState state) {
  const std::string& name = v1::JobState_Name(state);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "JOB_STATE_"));
}

bool IsSaved(const v1::GetJobResponse& job) {
  return !job.has_profile_spec() && !job.spec().checkpoint().directory().empty();
}

std::optional<int> ProgressPercentage(const v1::JobSummary& job) {
  if (job.steps() <= 0) return std::nullopt;
  return static_cast<int>(100 * std::clamp<int64_t>(job.step(), 0, job.steps()) / job.steps());
}

}  // namespace penstock
