// The studies of arXiv 2606.03498 on linear models, each one function: `penstock theory` runs them.
//
// Every seed is another problem, another noise and other draws; methods of one seed share them. Step sizes
// are tuned on the paper's grids by the paper's rule (tuning.h). The inputs of a study can be changed, so
// that tests can run small ones. The defaults are the settings that made the plotted curves of the paper, as its authors' stored
// outputs show; where the captions of the figures say something else, Caption() has that.
//
// Errors of all: Cancelled if the context says to stop; those of PipeDreamSequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "studies/theory/noise.h"
#include "studies/theory/problem.h"
#include "studies/theory/problems.h"
#include "studies/theory/study.h"
#include "studies/theory/ticks.h"

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
// With the batch of the caption the step sizes of the figure diverge at 512 columns, even without a pipeline: a
// minibatch of 10 rows has a curvature of about 65. They are what the rule chooses for 64 columns,
// so both are run. The rule looks at the whole curve here, as in the authors' code, not at its
// tail.
struct QuadraticStudy {
  int64_t seeds = 5;
  int32_t stages = 8;
  int64_t epochs = 20;
  int64_t rows = 2000;
  int64_t batch = 100;
  std::vector<int64_t> widths = {512};
  std::vector<int64_t> deltas = {8, 30, 60, 180, 420};
  PipeDreamOrder order = PipeDreamOrder::kEager;

  static QuadraticStudy Caption() {
    return {.epochs = 5,
            .rows = 600,
            .batch = 10,
            .widths = {64, 512},
            .order = PipeDreamOrder::kStatic};
  }
};
absl::StatusOr<StudyResult> RunQuadraticStudy(const QuadraticStudy& study, StudyContext& context);

// The losses that PipeDream, RPD and LocalSGD (R = S, H = 5) reach on logistic regression in a
// budget of ticks, against the number of stages (figure 2b).
struct LogisticStudy {
  int64_t seeds = 5;
  std::vector<int32_t> stages = {2, 4, 8, 16, 32, 64, 128};
  int64_t ticks = 3180;
  ProblemSize size = {.rows = 50};
  int64_t batch = 1;
  double noise = 0.5;           // deviation, of every entry of every gradient
  bool shows_objective = true;  // f(w), and not f(w) - f*
  PipeDreamOrder order = PipeDreamOrder::kEager;
  const Problem* data = nullptr;  // instead of synthetic problems; without noise

  static LogisticStudy Caption() {
    return {.ticks = 3684,
            .size = {},
            .batch = 10,
            .shows_objective = false,
            .order = PipeDreamOrder::kStatic};
  }
};
absl::StatusOr<StudyResult> RunLogisticStudy(const LogisticStudy& study, StudyContext& context);

// The points of figure 2b for PipeDream, from the numbers that its authors' code drew: what it ends at with one step size.
struct DrawnNumbers {
  Problem problem;
  struct OfStages {
    int32_t stages = 0;
    GradientNoise noise;    // of all updates, those of a tick by stage
    std::string published;  // "1.0780e-02": what the authors' code stored, or empty
  };
  std::vector<OfStages> of_stages;
};
struct DrawnStudy {
  int64_t ticks = 3180;
  int64_t batch = 1;
  double learning_rate = 0.015625;  // 2^-6
  const DrawnNumbers* numbers = nullptr;
};
absl::StatusOr<StudyResult> RunDrawnStudy(const DrawnStudy& study, StudyContext& context);

// PipeDream and LocalSGD (R = S) over ticks (figure 4), on logistic regression with the gradient noise of figure 2b, and on
// Nesterov's quadratic (batch 5). The budget is what PipeDream needs for the epochs.
struct LocalSgdStudy {
  struct Logistic {
    ProblemSize size = {.rows = 80};
    int64_t batch = 2;
    int64_t epochs = 10;
    double noise = 0.5;
    bool shows_objective = true;      // f(w), and not f(w) - f*
    bool also_without_noise = false;  // as another problem
  };
  int64_t seeds = 5;
  int32_t stages = 16;
  Logistic logistic;
  int64_t epochs = 5;
  ProblemSize size;  // of the quadratic
  std::vector<int64_t> local_steps = {2, 5, 30};
  PipeDreamOrder order = PipeDreamOrder::kEager;
  // Instead of all: without noise, with batches of 10, and for as long as `epochs` of 600 rows last.
  const Problem* data = nullptr;

  static LocalSgdStudy Caption() {
    return {.logistic = {.size = {},
                         .batch = 10,
                         .epochs = 5,
                         .shows_objective = false,
                         .also_without_noise = true},
            .order = PipeDreamOrder::kStatic};
  }
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
