// LossCurve: in how many steps a training had which loss.
//
// The loss of a single step is noisy, so a loss counts as reached at the first step after which the mean over the last
// eighth of the steps (four at least) is not above it. The window grows with the steps, so a training that takes
// r times the steps of another for everything takes r times the steps to every loss: how many steps two
// trainings take to a loss can be compared whatever their ratio is.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace penstock {

// Return the mean over the last eighth of the first `steps` of `losses`, and its standard error, as if the losses of
// single steps were independent. REQUIRES: 0 < steps <= losses.size().
double SmoothLoss(const std::vector<double>& losses, int64_t steps);
double ErrorOfSmoothLoss(const std::vector<double>& losses, int64_t steps);

// Returns the first step, four at the earliest, at which `losses` (of all steps from the first) reach `loss`.
std::optional<int64_t> StepsTo(double loss, const std::vector<double>& losses);

// Summarizes a training by steps and the least smooth loss up to each, at most kPointsMax points, which are further
// apart the later they are.
struct LossCurve {
  static constexpr size_t kPointsMax = 96;
  struct Point {
    int64_t steps = 0;
    double loss = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };
  std::vector<Point> points;  // steps rise, losses do not

  int64_t steps() const { return points.empty() ? 0 : points.back().steps; }
  // Interpolates in the logarithm of the steps. Absent: it was not reached, or was before the first point.
  std::optional<double> StepsTo(double loss) const;
  // The least smooth loss up to `steps`. Absent: it was not trained as far, or `steps` is before the first point.
  std::optional<double> LossAt(double steps) const;
  friend bool operator==(const LossCurve&, const LossCurve&) = default;
};

// Makes a curve from the losses of the steps 1, 1 + `stride`, 1 + 2 `stride`, ...: a long training does not keep all.
LossCurve CurveOf(const std::vector<double>& losses, int64_t stride = 1);

}  // namespace penstock
