#include "planner/job/planned_job.h"

#include "base/status.h"

namespace penstock {

const JudgedCandidate* PlannedJob::chosen() const {
  const std::optional<int> index = race.has_value() ? race->winner() : plan.fastest;
  return index.has_value() ? &plan.candidates[*index] : nullptr;
}

absl::Status DescribeChosen(const PlanningInput& input, bool explains, PlannedJob& planned) {
  planned.cluster = input.cluster;
  const JudgedCandidate* const chosen = planned.chosen();
  if (chosen == nullptr) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(planned.picture, PictureOf(input, *chosen));
  if (!explains) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(planned.reasons, ReasonsOf(input, *chosen));
  return absl::OkStatus();
}

}  // namespace penstock
