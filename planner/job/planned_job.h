// PlannedJob: a job's plan with what is chosen of it, and what there is to say of the choice.
//
// Plain values and pure functions.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "planner/job/plan_job.h"
#include "planner/job/race.h"
#include "planner/job/stage_picture.h"
#include "planner/job/step_reasons.h"

namespace penstock {

// The race, in the order of `candidates`.
struct JobRace {
  std::vector<int> candidates;  // of the plan
  RaceResult result;

  std::optional<int> winner() const {
    if (!result.winner.has_value()) return std::nullopt;
    return candidates[*result.winner];
  }
};

struct PlannedJob {
  JobPlan plan;
  Cluster cluster;
  std::optional<JobRace> race;
  std::optional<StagePicture> picture;  // of the chosen one
  std::optional<StepReasons> reasons;   // of its step, if they were asked for

  // Returns the race's winner, or without a race the fastest; null if none can run, or all failed.
  const JudgedCandidate* chosen() const;
};

// Fills in cluster, picture and, if `explains`, reasons. `input`: what `planned` was planned for.
// Errors: those of PictureOf and ReasonsOf.
absl::Status DescribeChosen(const PlanningInput& input, bool explains, PlannedJob& planned);

}  // namespace penstock
