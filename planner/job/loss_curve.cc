#include "planner/job/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace penstock {
namespace {

constexpr int64_t kLossesMin = 4;    // that are averaged
constexpr int64_t kLossesShare = 8;  // one in this many steps is
// From one point of a curve to the next the steps grow by the factor 2^(1/4).
constexpr double kPointRatio = 1.189207115002721;

int64_t LossesAveraged(int64_t steps) {
  return std::min(steps, std::max(kLossesMin, steps / kLossesShare));
}

// Computes SmoothLoss after each step, in a time that does not grow with the steps.
class SmoothLosses {
 public:
  explicit SmoothLosses(const std::vector<double>& losses) : sums_(losses.size() + 1) {
    std::partial_sum(losses.begin(), losses.end(), sums_.begin() + 1);
  }
  double After(int64_t steps) const {
    const int64_t averaged = LossesAveraged(steps);
    return (sums_[steps] - sums_[steps - averaged]) / static_cast<double>(averaged);
  }

 private:
  std::vector<double> sums_;  // of the first losses
};

// Interpolates in the logarithm of the steps: returns the weight of `b` at `steps`.
double Between(const LossCurve::Point& a, const LossCurve::Point& b, double steps) {
  return std::log(steps / static_cast<double>(a.steps)) /
         std::log(static_cast<double>(b.steps) / static_cast<double>(a.steps));
}

}  // namespace

double SmoothLoss(const std::vector<double>& losses, int64_t steps) {
  const int64_t averaged = LossesAveraged(steps);
  const auto end = losses.begin() + steps;
  return std::accumulate(end - averaged, end, 0.0) / static_cast<double>(averaged);
}

double ErrorOfSmoothLoss(const std::vector<double>& losses, int64_t steps) {
  const int64_t averaged = LossesAveraged(steps);
  if (averaged < 2) return 0;
  const double mean = SmoothLoss(losses, steps);
  double squares = 0;
  for (int64_t at = steps - averaged; at < steps; ++at) {
    squares += (losses[at] - mean) * (losses[at] - mean);
  }
  return std::sqrt(squares / static_cast<double>(averaged - 1) / static_cast<double>(averaged));
}

std::optional<int64_t> StepsTo(double loss, const std::vector<double>& losses) {
  const SmoothLosses smooth(losses);
  for (int64_t steps = kLossesMin; steps <= static_cast<int64_t>(losses.size()); ++steps) {
    if (smooth.After(steps) <= loss) return steps;
  }
  return std::nullopt;
}

std::optional<double> LossCurve::StepsTo(double loss) const {
  if (points.empty() || loss > points.front().loss) return std::nullopt;
  const auto after = std::find_if(points.begin(), points.end(),
                                  [&](const Point& point) { return point.loss <= loss; });
  if (after == points.end()) return std::nullopt;
  if (after == points.begin()) return static_cast<double>(after->steps);
  const Point& a = *(after - 1);
  const Point& b = *after;
  const double weight = (a.loss - loss) / (a.loss - b.loss);
  return static_cast<double>(a.steps) *
         std::pow(static_cast<double>(b.steps) / static_cast<double>(a.steps), weight);
}

std::optional<double> LossCurve::LossAt(double at) const {
  if (points.empty() || at < static_cast<double>(points.front().steps)) return std::nullopt;
  const auto after = std::find_if(points.begin(), points.end(), [&](const Point& point) {
    return static_cast<double>(point.steps) >= at;
  });
  if (after == points.end()) return std::nullopt;
  if (after == points.begin()) return after->loss;
  const Point& a = *(after - 1);
  return a.loss + (after->loss - a.loss) * Between(a, *after, at);
}

LossCurve CurveOf(const std::vector<double>& losses, int64_t stride) {
  const SmoothLosses smooth(losses);
  LossCurve curve;
  double least = std::numeric_limits<double>::infinity();
  double next = static_cast<double>(kLossesMin);
  const auto count = static_cast<int64_t>(losses.size());
  for (int64_t steps = kLossesMin; steps <= count; ++steps) {
    least = std::min(least, smooth.After(steps));
    if (static_cast<double>(steps) < next && steps < count) continue;
    while (next <= static_cast<double>(steps)) next *= kPointRatio;
    if (!std::isfinite(least) || curve.points.size() == LossCurve::kPointsMax) break;
    curve.points.push_back({.steps = 1 + (steps - 1) * stride, .loss = least});
  }
  return curve;
}

}  // namespace penstock
