// Tuning: chooses a method's step size from a grid, by the rule of arXiv 2606.03498.
//
// Steps whose curve is not stable in its tail (the last 20 %) are discarded; of the others the smallest
// whose tail mean is within 5 % of the best is taken. If none is stable, the one with the best tail mean
// is. The rule looks at the mean curve of all seeds.
//
// Pure functions, but for the context that a sweep is given.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "studies/theory/curve.h"
#include "studies/theory/study.h"

namespace penstock {

// 2^first, ..., 2^last.
std::vector<double> PowersOfTwo(int first, int last);

// The paper's grids for logistic regression and Nesterov's quadratic.
inline std::vector<double> PipelineGrid() { return PowersOfTwo(-12, -3); }
inline std::vector<double> LocalSgdGrid() { return PowersOfTwo(-8, 2); }

// The shape of a tail. Gaps count as at least kGapMin.
struct TailShape {
  bool finite = false;  // the whole curve is
  double mean = 0.0;
  double variation = 0.0;        // standard deviation over mean
  double rising_fraction = 0.0;  // of the steps from point to point
  double rise_max = 0.0;         // the largest, over the mean
  double total_variation = 0.0;  // sum of |steps|, over |last - first|
  double log_slope = 0.0;        // least squares of log gap, per tick
};
inline constexpr double kGapMin = 1e-16;

struct TailLimits {
  double variation = 0.15;
  double rising_fraction = 0.45;
  double rise_max = 0.05;
  double total_variation = 5.0;
  double log_slope = 1e-4;
};

// Measures the points from `tail_begin` on. A tail of one point has no steps and no slope.
TailShape ShapeOfTail(absl::Span<const CurvePoint> curve, int64_t tail_begin);
bool IsStable(const TailShape& tail, const TailLimits& limits = {});

// The index of the chosen tail. REQUIRES: `tails` is not empty and by rising step size.
size_t ChooseStep(absl::Span<const TailShape> tails, const TailLimits& limits = {});

// Returns the mean of the gaps at the same ticks. REQUIRES: `curves` is not empty, all by one plan.
Curve MeanCurve(absl::Span<const Curve> curves);

// A method at the step size that was chosen for it.
struct TunedMethod {
  double learning_rate = 0.0;
  bool stable = false;
  Curve mean;
  std::vector<Curve> by_seed;
  std::vector<Curve> mean_by_step;  // of the whole grid

  // Returns the mean gap of the last points.
  double final_mean() const { return mean.back().gap; }
  // The least final mean of the whole grid, whatever the rule says.
  double best_final() const;
  // The same of the mean over the last hundredth of the ticks, which noise moves less.
  double best_end() const;
  double final_min() const;
  double final_max() const;
};

// Runs the whole grid with all seeds, in parallel as far as the context allows.
// Errors: Cancelled if the context says to stop.
absl::StatusOr<TunedMethod> Tune(
    absl::Span<const double> grid, int64_t seeds, const CurvePlan& plan,
    const std::function<Curve(double learning_rate, int64_t seed)>& run, StudyContext& context);

}  // namespace penstock
