#include "studies/theory/tuning.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace penstock {
namespace {

// The slope of log gap over ticks, by least squares.
double LogSlope(absl::Span<const CurvePoint> tail) {
  const auto count = static_cast<double>(tail.size());
  double tick_mean = 0.0;
  double log_mean = 0.0;
  for (const CurvePoint& point : tail) {
    tick_mean += static_cast<double>(point.tick) / count;
    log_mean += std::log(std::max(point.gap, kGapMin)) / count;
  }
  double covariance = 0.0;
  double variance = 0.0;
  for (const CurvePoint& point : tail) {
    const double offset = static_cast<double>(point.tick) - tick_mean;
    covariance += offset * (std::log(std::max(point.gap, kGapMin)) - log_mean);
    variance += offset * offset;
  }
  return variance > 0.0 ? covariance / variance : 0.0;
}

double FinalOf(const Curve& curve) { return curve.back().gap; }

}  // namespace

std::vector<double> PowersOfTwo(int first, int last) {
  std::vector<double> grid;
  for (int power = first; power <= last; ++power) grid.push_back(std::ldexp(1.0, power));
  return grid;
}

TailShape ShapeOfTail(absl::Span<const CurvePoint> curve, int64_t tail_begin) {
  TailShape shape;
  shape.finite = std::all_of(curve.begin(), curve.end(),
                             [](const CurvePoint& point) { return std::isfinite(point.gap); });
  if (!shape.finite) return shape;
  const auto first = std::find_if(curve.begin(), curve.end(), [&](const CurvePoint& point) {
    return point.tick >= tail_begin;
  });
  const absl::Span<const CurvePoint> tail(&*first, curve.end() - first);
  const auto count = static_cast<double>(tail.size());
  const auto gap = [&](size_t i) { return std::max(tail[i].gap, kGapMin); };
  for (size_t i = 0; i < tail.size(); ++i) shape.mean += gap(i) / count;
  double variance = 0.0;
  double absolute = 0.0;
  for (size_t i = 0; i < tail.size(); ++i) {
    variance += (gap(i) - shape.mean) * (gap(i) - shape.mean) / count;
    if (i == 0) continue;
    const double step = gap(i) - gap(i - 1);
    absolute += std::fabs(step);
    if (step > 0.0) shape.rising_fraction += 1.0 / (count - 1.0);
    shape.rise_max = std::max(shape.rise_max, step / shape.mean);
  }
  shape.variation = std::sqrt(variance) / shape.mean;
  const double net = std::fabs(gap(tail.size() - 1) - gap(0));
  shape.total_variation = absolute / (net + kGapMin);
  shape.log_slope = LogSlope(tail);
  return shape;
}

bool IsStable(const TailShape& tail, const TailLimits& limits) {
  return tail.finite && tail.variation <= limits.variation &&
         tail.rising_fraction <= limits.rising_fraction && tail.rise_max <= limits.rise_max &&
         tail.total_variation <= limits.total_variation && tail.log_slope <= limits.log_slope;
}

size_t ChooseStep(absl::Span<const TailShape> tails, const TailLimits& limits) {
  constexpr double kNear = 1.05;
  const bool any_stable = std::any_of(
      tails.begin(), tails.end(), [&](const TailShape& tail) { return IsStable(tail, limits); });
  const auto candidate = [&](const TailShape& tail) {
    return any_stable ? IsStable(tail, limits) : tail.finite;
  };
  size_t best = tails.size();
  for (size_t i = 0; i < tails.size(); ++i) {
    if (!candidate(tails[i])) continue;
    if (best == tails.size() || tails[i].mean < tails[best].mean) best = i;
  }
  if (best == tails.size()) return 0;  // all have diverged; the smallest did so last
  if (!any_stable) return best;
  size_t chosen = 0;
  while (!candidate(tails[chosen]) || tails[chosen].mean > kNear * tails[best].mean) ++chosen;
  return chosen;
}

Curve MeanCurve(absl::Span<const Curve> curves) {
  Curve mean = curves.front();
  for (size_t i = 0; i < mean.size(); ++i) {
    mean[i].gap = 0.0;
    for (const Curve& curve : curves) {
      mean[i].gap += curve[i].gap / static_cast<double>(curves.size());
    }
  }
  return mean;
}

double TunedMethod::best_final() const {
  double best = final_mean();
  for (const Curve& curve : mean_by_step) best = std::min(best, FinalOf(curve));
  return best;
}

double TunedMethod::best_end() const {
  const auto end_of = [](const Curve& curve) {
    double sum = 0.0;
    int64_t points = 0;
    for (const CurvePoint& point : curve) {
      if (100 * point.tick < 99 * curve.back().tick) continue;
      sum += point.gap;
      ++points;
    }
    return sum / static_cast<double>(points);
  };
  double best = end_of(mean);
  for (const Curve& curve : mean_by_step) best = std::min(best, end_of(curve));
  return best;
}

double TunedMethod::final_min() const {
  double least = FinalOf(by_seed.front());
  for (const Curve& curve : by_seed) least = std::min(least, FinalOf(curve));
  return least;
}

double TunedMethod::final_max() const {
  double most = FinalOf(by_seed.front());
  for (const Curve& curve : by_seed) most = std::max(most, FinalOf(curve));
  return most;
}

absl::StatusOr<TunedMethod> Tune(
    absl::Span<const double> grid, int64_t seeds, const CurvePlan& plan,
    const std::function<Curve(double learning_rate, int64_t seed)>& run, StudyContext& context) {
  std::vector<std::vector<Curve>> curves(grid.size(), std::vector<Curve>(seeds));
  const auto runs = static_cast<int64_t>(grid.size()) * seeds;
  PENSTOCK_RETURN_IF_ERROR(context.ForEach(
      runs, [&](int64_t i) { curves[i / seeds][i % seeds] = run(grid[i / seeds], i % seeds); }));
  std::vector<TailShape> tails;
  std::vector<Curve> means;
  for (const std::vector<Curve>& by_seed : curves) {
    means.push_back(MeanCurve(by_seed));
    tails.push_back(ShapeOfTail(means.back(), plan.tail_begin()));
  }
  const size_t chosen = ChooseStep(tails);
  return TunedMethod{grid[chosen], IsStable(tails[chosen]), means[chosen],
                     std::move(curves[chosen]), std::move(means)};
}

}  // namespace penstock
