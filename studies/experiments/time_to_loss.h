// Losses over simulated time, and when a run reached a loss.
//
// Weights do not depend on timing, so a run is trained anywhere, and the step of each validation is stamped with
// the time that the schedule of a method takes until then. One training may so stand for several methods.
//
// Plain values and pure functions.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace penstock {

struct TimedLoss {
  double time = 0.0;
  double loss = 0.0;  // infinite once the run has diverged
  friend bool operator==(const TimedLoss&, const TimedLoss&) = default;
};
using TimedCurve = std::vector<TimedLoss>;  // by time

// Returns when the loss was first at or below `loss`, on straight lines between the points; the time of the first
// point if it is already. Absent: it never was. REQUIRES: no loss is NaN.
std::optional<double> TimeToLoss(absl::Span<const TimedLoss> curve, double loss);

// Returns the loss at `time`, on straight lines between the points; before the first and after the last point theirs.
// REQUIRES: the curve is not empty.
double LossAt(absl::Span<const TimedLoss> curve, double time);

// Returns the mean of curves with the same times. REQUIRES: there is a curve, and all have the times of the first.
TimedCurve MeanOf(absl::Span<const TimedCurve> curves);

}  // namespace penstock
