// LogisticProblems: what the studies of logistic regression are run on, by seed.
//
// Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "studies/theory/noise.h"
#include "studies/theory/problem.h"
#include "studies/theory/problems.h"
#include "studies/theory/study.h"

namespace penstock {

struct LogisticProblems {
  std::vector<Problem> by_seed;  // one alone if it is data
  std::vector<GradientNoise> noise;

  const Problem& Of(int64_t seed) const { return by_seed[seed % by_seed.size()]; }
};

struct LogisticProblemOptions {
  int64_t seeds = 1;
  int64_t ticks =
      0;  // that a run has: noise is sampled for as many microbatches as PipeDream computes then
  ProblemSize size;
  double noise = 0.0;             // deviation, of every entry of every gradient
  const Problem* data = nullptr;  // instead of synthetic problems; without noise
};

// Errors: Cancelled if the context says to stop.
absl::StatusOr<LogisticProblems> MakeLogisticProblems(const LogisticProblemOptions& options,
                                                      StudyContext& context);

}  // namespace penstock
