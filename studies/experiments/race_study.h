// Tests on logistic regression whether a race chooses the first to a loss: `penstock theory race`.
//
// PipeDream, LocalSGD (R = S, H = 5) and minibatches that drain, each with the step size that the paper's rule chooses
// for it (theory/tuning.h), are run once through pipelines of several depths, the gap to the optimum stamped with the ticks
// of each (theory/ticks.h). The race that chooses plans (planner/job/race.h) then sees of these curves what it would have
// trained. On a network the same is tests/bench/time_to_target.py.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "studies/theory/problem.h"
#include "studies/theory/problems.h"
#include "studies/theory/study.h"

namespace penstock {

struct RaceStudy {
  int64_t seeds = 5;
  std::vector<int32_t> stages = {2, 4, 8};
  int64_t ticks = 3684;
  ProblemSize size;
  double noise = 0.5;             // deviation, of every entry of every gradient
  const Problem* data = nullptr;  // instead of synthetic problems; without noise
  // Shares of the gap at the start, to be reached.
  std::vector<double> shares = {0.7, 0.5, 0.4, 0.3};
};

// Errors: Cancelled if the context says to stop; those of PipeDreamSequence.
absl::StatusOr<StudyResult> RunRaceStudy(const RaceStudy& study, StudyContext& context);

}  // namespace penstock
