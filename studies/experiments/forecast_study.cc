#include "studies/experiments/forecast_study.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "planner/job/curve_forecast.h"

namespace penstock {
namespace {

constexpr int64_t kAskedPercents[] = {40, 50, 60, 70, 80, 90, 100};
constexpr double kForecastGoal = 0.1;

// The forecasts of some curves.
struct ForecastErrors {
  void Add(std::optional<CurveForecast::Steps> forecast, double reached) {
    of.push_back(forecast.has_value() ? std::abs(forecast->median / reached - 1)
                                      : std::numeric_limits<double>::infinity());
    held += forecast.has_value() && forecast->low <= reached && reached <= forecast->high;
  }
  void Add(const ForecastErrors& others) {
    of.insert(of.end(), others.of.begin(), others.of.end());
    held += others.held;
    curves += others.curves;
  }

  std::vector<double> of;
  int64_t held = 0;  // by the intervals
  int64_t curves = 0;
};

std::string ErrorText(double error) {
  return std::isfinite(error) ? absl::StrFormat("%.1f %%", 100 * error) : "never reached";
}

Finding WhetherWithin(const std::string& setup, const ForecastErrors& errors) {
  std::vector<double> sorted = errors.of;
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<int64_t>(sorted.size());
  const auto at = [&](double part) {
    return ErrorText(sorted[static_cast<size_t>(part * static_cast<double>(count - 1))]);
  };
  const int64_t within = std::count_if(sorted.begin(), sorted.end(),
                                       [](double error) { return error <= kForecastGoal; });
  return {absl::StrFormat("%s: every loss is forecast within %.0f %%", setup, 100 * kForecastGoal),
          within == count,
          absl::StrFormat("median %s, nine of ten at most %s, largest %s; within %.0f %%: %d of %d "
                          "losses (%d %%), in the intervals %d %%; curves: %d",
                          at(0.5), at(0.9), at(1), 100 * kForecastGoal, within, count,
                          100 * within / count, 100 * errors.held / count, errors.curves)};
}

// A row for each loss that was not reached in the part that is seen. Adds their errors.
absl::Status ForecastCurve(const FinishedCurve& run, absl::Span<const FinishedCurve> curves,
                           double part, StudyTable& table, ForecastErrors& errors) {
  const int64_t steps = run.steps();
  std::vector<LossCurve> earlier;
  for (const FinishedCurve& other : curves) {
    if (&other == &run || other.setup != run.setup || other.steps() != steps) continue;
    earlier.push_back(CurveUpTo(other, steps));
  }
  const auto end = static_cast<int64_t>(part * static_cast<double>(steps));
  const LossCurve seen = CurveUpTo(run, end);
  const absl::StatusOr<CurveForecast> forecast = CurveForecast::Make(seen, steps, earlier);
  if (!forecast.ok()) {
    return Annotate(forecast.status(), absl::StrCat(run.setup, ", ", run.name, ", the first ", end,
                                                    " of ", steps, " steps"));
  }
  const LossCurve whole = CurveUpTo(run, steps);
  const std::string way =
      forecast->way() == CurveForecast::Way::kOwnLine ? "own line" : "earlier runs";
  for (const int64_t percent : kAskedPercents) {
    const double at = static_cast<double>(percent * steps) / 100;
    const std::optional<double> loss = whole.LossAt(at);
    if (!loss.has_value() || *loss >= seen.points.back().loss) continue;
    const double reached = whole.StepsTo(*loss).value_or(at);
    const std::optional<CurveForecast::Steps> predicted = forecast->StepsTo(*loss);
    errors.Add(predicted, reached);
    const auto cell = [&](double value) {
      return predicted.has_value() ? StudyCell(value) : StudyCell(std::string("never"));
    };
    const CurveForecast::Steps told = predicted.value_or(CurveForecast::Steps{});
    table.rows.push_back({run.setup, run.name, int64_t{forecast->earlier_runs()}, way, percent,
                          *loss, reached, cell(told.median), cell(told.low), cell(told.high),
                          cell(100 * (told.median / reached - 1))});
  }
  ++errors.curves;
  return absl::OkStatus();
}

}  // namespace

int64_t FinishedCurve::steps() const {
  if (!losses.empty()) return static_cast<int64_t>(losses.size());
  return points.empty() ? 0 : points.back().steps;
}

LossCurve CurveUpTo(const FinishedCurve& finished, int64_t steps) {
  if (!finished.losses.empty()) {
    const int64_t count = std::min(steps, finished.steps());
    return CurveOf({finished.losses.begin(), finished.losses.begin() + count});
  }
  LossCurve all;
  for (const LossCurve::Point& point : finished.points) {
    if (point.steps > steps) break;
    const double least =
        all.points.empty() ? point.loss : std::min(point.loss, all.points.back().loss);
    all.points.push_back({point.steps, least});
  }
  if (all.points.size() <= LossCurve::kPointsMax) return all;
  // Points that are further apart the later they are, and the last one.
  const double first = static_cast<double>(all.points.front().steps);
  const double ratio = std::pow(static_cast<double>(all.steps()) / first,
                                1.0 / static_cast<double>(LossCurve::kPointsMax - 1));
  LossCurve curve;
  double next = first;
  for (const LossCurve::Point& point : all.points) {
    const auto at = static_cast<double>(point.steps);
    if (at < next && point.steps != all.steps()) continue;
    while (next <= at) next *= ratio;
    curve.points.push_back(point);
  }
  return curve;
}

absl::StatusOr<StudyResult> RunForecastStudy(absl::Span<const FinishedCurve> curves, double part) {
  if (curves.empty()) return absl::InvalidArgumentError("there are no curves to forecast");
  if (!(part > 0 && part < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("the part of each curve that is seen is ", part,
                                                   "; it must be above 0 and below 1"));
  }
  StudyResult result = {
      .title = "Steps to a loss, forecast within a run",
      .settings = {{"curves", static_cast<int64_t>(curves.size())}, {"seen_percent", 100 * part}}};
  result.table.columns = {"setup", "curve",    "others", "way",  "at_percent",   "loss",
                          "steps", "forecast", "low",    "high", "error_percent"};
  std::vector<std::pair<std::string, ForecastErrors>> by_setup;
  for (const FinishedCurve& run : curves) {
    auto found = std::find_if(by_setup.begin(), by_setup.end(),
                              [&](const auto& known) { return known.first == run.setup; });
    if (found == by_setup.end()) {
      by_setup.push_back({run.setup, {}});
      found = by_setup.end() - 1;
    }
    PENSTOCK_RETURN_IF_ERROR(ForecastCurve(run, curves, part, result.table, found->second));
  }
  ForecastErrors all;
  for (const auto& [setup, errors] : by_setup) {
    all.Add(errors);
    if (!errors.of.empty()) result.findings.push_back(WhetherWithin(setup, errors));
  }
  if (all.of.empty()) {
    return absl::InvalidArgumentError(
        "no curve falls after the part that is seen, so there is nothing to forecast");
  }
  if (by_setup.size() > 1) result.findings.push_back(WhetherWithin("all setups", all));
  return result;
}

}  // namespace penstock
