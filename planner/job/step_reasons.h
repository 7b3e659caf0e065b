// StepReasons: what sets the time of a candidate's step, found by taking causes away.
//
// Plain values and pure functions.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/job/plan_job.h"

namespace penstock {

struct StepReasons {
  int busiest = 0;       // the worker of the pipeline that computes most
  double busiest_s = 0;  // in a step; no order of its work and no network makes the step shorter
  double without_network_s = 0;  // the step, if messages took no time
  double spread_s = 0;           // the step, if all work were spread over the workers by speed
};

// REQUIRES: judged.runs(). Errors: those of CandidateJudge.
absl::StatusOr<StepReasons> ReasonsOf(const PlanningInput& input, const JudgedCandidate& judged);

// The fastest of the candidates that memory alone keeps from running, if it would be faster than the fastest that
// runs. An index into plan.candidates.
std::optional<int> FasterButForMemory(const JobPlan& plan);
// Returns the candidate that only lacks memory and whose neediest worker would do with the least. An index as above.
std::optional<int> SmallestButForMemory(const JobPlan& plan);

}  // namespace penstock
