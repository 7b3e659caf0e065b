#include "planner/job/curve_forecast.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "planner/job/normal_regression.h"

namespace penstock {
namespace {

// Deviations a priori of the weights: of a, of b, and of all c_r together.
constexpr double kOffset = 0.1;
constexpr double kScale = 0.1;
constexpr double kRuns = 1;
// The noise in the logarithm of a smooth loss. The points of a curve go wrong together, so they count as one observation.
constexpr double kLossNoise = 0.003;

// The steps that are fitted: from these parts of those that were seen on, read at this many points.
constexpr double kWindowOfRuns = 0.3;
constexpr double kWindowOfLine = 0.5;
constexpr int kWindowPoints = 12;
constexpr int kPathPoints = 120;

// After the last step the loss goes on as in this last part of the steps.
constexpr double kLastPart = 0.7;

// The losses at which earlier runs are predicted: those after these parts of the steps.
constexpr double kAsked[] = {0.5, 0.7, 0.85, 1.0};
// Counts for a loss that is never reached, or much too late.
constexpr double kMissMax = 2;
// How far off a forecast is before any run was predicted, as a part of the way, and for how many losses that stands.
constexpr double kMissPrior = 0.25;
constexpr double kMissPriorCount = std::size(kAsked);

constexpr double kForecastDeviations = 1.645;  // to the bounds that hold 90 %

// Interpolates the logarithm of the loss; before the first and after the last point it is theirs.
double LogLossAt(const LossCurve& curve, double steps) {
  const auto first = static_cast<double>(curve.points.front().steps);
  const auto last = static_cast<double>(curve.points.back().steps);
  return std::log(*curve.LossAt(std::clamp(steps, first, last)));
}

// `count` + 1 steps from `first` to `last`, each further than the one before by the same factor.
std::vector<double> StepsBetween(double first, double last, int count) {
  std::vector<double> steps(count + 1, last);
  for (int i = 0; i < count; ++i) {
    steps[i] = first * std::pow(last / first, static_cast<double>(i) / count);
  }
  return steps;
}

// The steps from `part` of the end of a curve on, but not before any of the curves begins.
std::vector<double> WindowOf(const LossCurve& seen, absl::Span<const LossCurve> earlier,
                             double part) {
  const auto end = static_cast<double>(seen.steps());
  auto first = std::max(part * end, static_cast<double>(seen.points.front().steps));
  for (const LossCurve& run : earlier) {
    first = std::max(first, static_cast<double>(run.points.front().steps));
  }
  return StepsBetween(first, end, kWindowPoints - 1);
}

LossCurve BeginningOf(const LossCurve& curve, int64_t end) {
  LossCurve beginning = curve;
  std::erase_if(beginning.points,
                [end](const LossCurve::Point& point) { return point.steps > end; });
  return beginning;
}

absl::Status CheckCurve(const LossCurve& curve, const std::string& name) {
  if (curve.points.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", curve.points.size(), " points; a forecast needs two at least"));
  }
  int64_t before = 0;
  for (const LossCurve::Point& point : curve.points) {
    if (point.steps <= before) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": its steps must rise from 1 on; ",
                                                     point.steps, " follows ", before));
    }
    if (!std::isfinite(point.loss) || point.loss <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": the loss after ", point.steps, " steps is ", point.loss,
                       "; forecasts are of losses that are positive numbers"));
    }
    before = point.steps;
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<double> CurveForecast::Path::LogStepsTo(double log_loss) const {
  const auto after = std::find_if(points.begin(), points.end(),
                                  [&](const Point& point) { return point.log_loss <= log_loss; });
  if (after == points.begin()) return after->log_steps;
  const Point& last = points.back();
  if (after == points.end()) {
    if (slope >= 0) return std::nullopt;
    return last.log_steps + (log_loss - last.log_loss) / slope;
  }
  const Point& before = *(after - 1);
  const double part = (before.log_loss - log_loss) / (before.log_loss - after->log_loss);
  return before.log_steps + part * (after->log_steps - before.log_steps);
}

CurveForecast::Path CurveForecast::OwnLine(const LossCurve& seen, int64_t steps) {
  double mean_x = 0;
  double mean_y = 0;
  std::vector<Path::Point> points;
  for (const double at : WindowOf(seen, {}, kWindowOfLine)) {
    points.push_back({std::log(at), LogLossAt(seen, at)});
    mean_x += points.back().log_steps / kWindowPoints;
    mean_y += points.back().log_loss / kWindowPoints;
  }
  double covariance = 0;
  double variance = 0;
  for (const Path::Point& point : points) {
    covariance += (point.log_steps - mean_x) * (point.log_loss - mean_y);
    variance += (point.log_steps - mean_x) * (point.log_steps - mean_x);
  }
  Path path = {.slope = variance > 0 ? covariance / variance : 0};
  for (const int64_t at : {seen.steps(), steps}) {
    const double x = std::log(static_cast<double>(at));
    path.points.push_back({x, mean_y + path.slope * (x - mean_x)});
  }
  return path;
}

CurveForecast::Path CurveForecast::LikeEarlier(const LossCurve& seen, int64_t steps,
                                               absl::Span<const LossCurve> earlier) {
  const auto mean = [&](double at) {
    double sum = 0;
    for (const LossCurve& run : earlier) sum += LogLossAt(run, at);
    return sum / static_cast<double>(earlier.size());
  };
  const auto end = static_cast<double>(seen.steps());
  const double mean_end = mean(end);
  const auto features = [&](double at) {
    const double m = mean(at);
    std::vector<std::pair<int, double>> x = {{0, 1.0}, {1, m - mean_end}};
    for (const LossCurve& run : earlier) {
      x.push_back({static_cast<int>(x.size()), LogLossAt(run, at) - m});
    }
    return x;
  };
  std::vector<NormalRegression::Weight> prior = {{0, kOffset}, {0, kScale}};
  prior.resize(2 + earlier.size(), {0, kRuns / std::sqrt(static_cast<double>(earlier.size()))});
  NormalRegression regression(prior);
  for (const double at : WindowOf(seen, earlier, kWindowOfRuns)) {
    regression.Observe({.x = features(at),
                        .y = LogLossAt(seen, at) - mean(at),
                        .precision = 1 / (kLossNoise * kLossNoise * kWindowPoints)});
  }
  Path path;
  const auto predicted = [&](double at) {
    return mean(at) + regression.Predict(features(at)).mean;
  };
  const auto last = static_cast<double>(steps);
  for (const double at : StepsBetween(end, last, kPathPoints)) {
    path.points.push_back({std::log(at), predicted(at)});
  }
  const double from = std::max(end, kLastPart * last);
  if (from < last) {
    path.slope = (path.points.back().log_loss - predicted(from)) / std::log(last / from);
  }
  return path;
}

CurveForecast::Path CurveForecast::PathOf(Way way, const LossCurve& seen, int64_t steps,
                                          absl::Span<const LossCurve> earlier) {
  return way == Way::kOwnLine ? OwnLine(seen, steps) : LikeEarlier(seen, steps, earlier);
}

CurveForecast::Misses CurveForecast::MissesOf(Way way, int64_t end, int64_t steps,
                                              absl::Span<const LossCurve> earlier) {
  Misses misses;
  for (size_t i = 0; i < earlier.size(); ++i) {
    std::vector<LossCurve> others(earlier.begin(), earlier.end());
    others.erase(others.begin() + static_cast<int64_t>(i));
    const LossCurve beginning = BeginningOf(earlier[i], end);
    if (beginning.points.size() < 2) continue;
    const Path path = PathOf(way, beginning, steps, others);
    const double log_end = std::log(static_cast<double>(beginning.steps()));
    for (const double part : kAsked) {
      const double at = part * static_cast<double>(steps);
      const std::optional<double> loss = earlier[i].LossAt(at);
      if (!loss.has_value() || *loss >= beginning.points.back().loss) continue;  // it was seen
      const double reached = std::log(earlier[i].StepsTo(*loss).value_or(at));
      const std::optional<double> predicted = path.LogStepsTo(std::log(*loss));
      const double miss =
          predicted.has_value() ? std::min(kMissMax, std::abs(*predicted - reached)) : kMissMax;
      misses.sum += miss;
      misses.squares += std::pow(miss / (reached - log_end), 2);
      ++misses.count;
    }
  }
  return misses;
}

absl::StatusOr<CurveForecast> CurveForecast::Make(const LossCurve& seen, int64_t steps,
                                                  absl::Span<const LossCurve> earlier) {
  absl::Status checked = CheckCurve(seen, "the curve that was seen");
  for (size_t i = 0; i < earlier.size() && checked.ok(); ++i) {
    checked = CheckCurve(earlier[i], absl::StrCat("the curve of earlier run ", i + 1));
  }
  if (!checked.ok()) return checked;
  if (seen.steps() > steps) {
    return absl::InvalidArgumentError(
        absl::StrCat("the curve that was seen has ", seen.steps(), " steps, the job ", steps));
  }
  std::vector<LossCurve> whole;
  for (const LossCurve& run : earlier) {
    const bool helps = run.steps() >= steps && run.points.front().steps < seen.steps();
    if (helps && seen.steps() < steps) whole.push_back(run);
  }
  CurveForecast forecast;
  forecast.earlier_runs_ = static_cast<int>(whole.size());
  Misses misses;
  if (whole.size() > 1) forecast.way_ = Way::kEarlierRuns;
  if (whole.size() > 2) {  // so that each can be predicted from two others
    misses = MissesOf(Way::kEarlierRuns, seen.steps(), steps, whole);
    const Misses of_lines = MissesOf(Way::kOwnLine, seen.steps(), steps, whole);
    if (of_lines.sum < misses.sum) {
      forecast.way_ = Way::kOwnLine;
      misses = of_lines;
    }
  }
  forecast.path_ = PathOf(forecast.way_, seen, steps, whole);
  forecast.deviation_ = std::sqrt((kMissPriorCount * kMissPrior * kMissPrior + misses.squares) /
                                  (kMissPriorCount + misses.count));
  return forecast;
}

std::optional<CurveForecast::Steps> CurveForecast::StepsTo(double loss) const {
  const std::optional<double> reached = path_.LogStepsTo(std::log(loss));
  const Path::Point& last = path_.points.back();
  if (!reached.has_value() || *reached > last.log_steps + std::log(kHorizon)) return std::nullopt;
  const double log_end = path_.points.front().log_steps;
  const double width = kForecastDeviations * deviation_ * (*reached - log_end);
  return Steps{.median = std::exp(*reached),
               .low = std::exp(std::max(log_end, *reached - width)),
               .high = std::exp(*reached + width)};
}

}  // namespace penstock
