// The studies of arXiv 2606.03498 on linear models, each one function: `penstock theory` runs them.
//
// Every seed is another problem, another noise and other draws; methods of one seed share them. Step sizes
// are tuned on the paper's grids by the paper's rule (tuning.h). The inputs of a study can be changed, so
// that tests can run small ones; the defaults are the paper's.
//
// Errors of all: Cancelled if the context says to stop; those of PipeDreamSequence.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "studies/theory/problem.h"
#include "studies/theory/problems.h"
#include "studies/theory/study.h"

namespace penstock {

// PipeDream's delay against the number of stages, by every way to count it, beside its closed forms
// (figure 6).
struct DelayStudy {
  std::vector<int32_t> stages = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                 11, 12, 13, 14, 15, 16, 32, 64, 128};
};
absl::StatusOr<StudyResult> RunDelayStudy(const DelayStudy& study, StudyContext& context);

// PipeDream and RPD with several delays on the random quadratic, over block updates (figure 2a).
//
// The paper's set-up has 512 columns, but its step sizes diverge there, even without a pipeline: a
// minibatch of 10 rows has a curvature of about 65. They are what its rule chooses for 64 columns,
// so both are run. The rule looks at the whole curve here, as in the authors' code, not at its
// tail.
struct QuadraticStudy {
  int64_t seeds = 5;
  int32_t stages = 8;
  int64_t epochs = 5;
  int64_t rows = 600;  // batch 10
  std::vector<int64_t> widths = {64, 512};
  std::vector<int64_t> deltas = {8, 30, 60, 180, 420};
};
absl::StatusOr<StudyResult> RunQuadraticStudy(const QuadraticStudy& study, StudyContext& context);

// The losses that PipeDream, RPD and LocalSGD (R = S, H = 5) reach on logistic regression in a
// budget of ticks, against the number of stages (figure 2b).
struct LogisticStudy {
  int64_t seeds = 5;
  std::vector<int32_t> stages = {2, 4, 8, 16, 32, 64, 128};
  int64_t ticks = 3684;
  ProblemSize size;
  double noise = 0.5;             // deviation, of every entry of every gradient
  const Problem* data = nullptr;  // instead of synthetic problems; without noise
};
absl::StatusOr<StudyResult> RunLogisticStudy(const LogisticStudy& study, StudyContext& context);

// PipeDream and LocalSGD (R = S) over ticks (figure 4), on three kinds of problems: logistic regression
// with the gradient noise of figure 2b (batch 10), the same without, and Nesterov's quadratic (batch 5). The
// budget is what PipeDream needs for the epochs.
struct LocalSgdStudy {
  int64_t seeds = 5;
  int32_t stages = 16;
  int64_t epochs = 5;
  ProblemSize size;
  double noise = 0.5;
  std::vector<int64_t> local_steps = {2, 5, 30};
  // Instead of all three: without noise, and for as long as `epochs` of the synthetic problem last.
  const Problem* data = nullptr;
};
absl::StatusOr<StudyResult> RunLocalSgdStudy(const LocalSgdStudy& study, StudyContext& context);

// Both sides of theorem 4.1 along runs of RPD on the random quadratic, and the left side of PipeDream,
// which the theorem does not cover.
struct BoundStudy {
  int64_t seeds = 5;
  int32_t stages = 8;
  int64_t epochs = 5;
  ProblemSize size;
  std::vector<int64_t> deltas = {8, 60, 420};
};
absl::StatusOr<StudyResult> RunBoundStudy(const BoundStudy& study, StudyContext& context);

}  // namespace penstock
