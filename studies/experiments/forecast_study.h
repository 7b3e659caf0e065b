// How well the steps to a loss are forecast within a run (planner/job/curve_forecast.h), on finished curves: each is
// predicted from its first part and from the whole curves of the other runs of its setup.
//
// Where the unit of a curve is a step of one length, the error of the steps is that of the time.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/job/loss_curve.h"
#include "studies/theory/study.h"

namespace penstock {

// A finished training: by `losses`, those of all its steps, or by `points`, whose losses are not noisy.
struct FinishedCurve {
  std::string setup;  // curves of equal ones can be compared
  std::string name;
  std::vector<double> losses;
  std::vector<LossCurve::Point> points;

  int64_t steps() const;
};

// Returns its curve as it was after `steps` steps, with at most LossCurve::kPointsMax points.
LossCurve CurveUpTo(const FinishedCurve& finished, int64_t steps);

// `part`: of each run is seen. The losses to predict are those that the run has after 40, 50, ... 100 % of its steps, where
// they are below what was seen. Errors: InvalidArgument: no curves, a part that is not between 0 and 1, a loss that is not
// a positive number, or a curve with fewer than two points in its part.
absl::StatusOr<StudyResult> RunForecastStudy(absl::Span<const FinishedCurve> curves, double part);

}  // namespace penstock
