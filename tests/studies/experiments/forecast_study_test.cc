#include "studies/experiments/forecast_study.h"

#include <gmock/gmock.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// Falls by a power of the steps, and takes `factor` times the steps of others.
FinishedCurve Falling(const std::string& setup, double factor, double exponent = 0.4) {
  FinishedCurve curve = {.setup = setup, .name = absl::StrCat(factor, " times")};
  for (int64_t at = 10; at <= 1000; at += 10) {
    curve.points.push_back({at, 3 * std::pow(static_cast<double>(at) / factor, -exponent)});
  }
  return curve;
}

double Number(const StudyResult& result, size_t row, const std::string& column) {
  for (size_t i = 0; i < result.table.columns.size(); ++i) {
    if (result.table.columns[i] == column) return std::get<double>(result.table.rows[row][i]);
  }
  ADD_FAILURE() << "no column " << column;
  return 0;
}

TEST(CurveUpTo, PointsOfMeasurements_AreTheLeastSoFar) {
  const FinishedCurve curve = {.points = {{100, 3}, {200, 2}, {300, 2.5}, {400, 1}}};
  EXPECT_EQ(curve.steps(), 400);
  EXPECT_THAT(CurveUpTo(curve, 399).points,
              ::testing::ElementsAre(LossCurve::Point{100, 3}, LossCurve::Point{200, 2},
                                     LossCurve::Point{300, 2}));
  EXPECT_THAT(CurveUpTo(curve, 99).points, ::testing::IsEmpty());
}

TEST(CurveUpTo, LossesOfSteps_AreReadAsIfTheRunHadEndedThere) {
  FinishedCurve curve;
  for (int i = 0; i < 100; ++i) curve.losses.push_back(5.0 / (i + 1));
  EXPECT_EQ(CurveUpTo(curve, 100), CurveOf(curve.losses));
  curve.losses.resize(60);
  const LossCurve shorter = CurveOf(curve.losses);
  curve.losses.resize(100, 9.0);  // what comes later counts for nothing
  EXPECT_EQ(CurveUpTo(curve, 60), shorter);
}

TEST(CurveUpTo, ManyPoints_BecomeFewAndKeepFirstAndLast) {
  for (const int64_t count : {96, 97, 1000, 50'000}) {
    FinishedCurve curve;
    for (int64_t at = 1; at <= count; ++at) {
      curve.points.push_back({at, 1.0 / static_cast<double>(at)});
    }
    const LossCurve few = CurveUpTo(curve, count);
    EXPECT_LE(few.points.size(), LossCurve::kPointsMax) << count;
    EXPECT_GE(few.points.size(), 40u) << count;
    EXPECT_EQ(few.points.front().steps, 1);
    EXPECT_EQ(few.points.back().steps, count);
  }
}

TEST(ForecastStudy, StretchedRuns_AreForecast) {
  const std::vector<FinishedCurve> curves = {Falling("a", 1), Falling("a", 1.3), Falling("a", 1.7),
                                             Falling("b", 1, 0.2)};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, RunForecastStudy(curves, 0.3));
  ASSERT_EQ(result.table.rows.size(), 28u);
  for (size_t row = 0; row < result.table.rows.size(); ++row) {
    const double at = 10.0 * static_cast<double>(4 + row % 7) * 10;
    EXPECT_NEAR(Number(result, row, "steps"), at, 1e-6 * at);
    EXPECT_NEAR(Number(result, row, "forecast"), at, 0.02 * at);
    EXPECT_NEAR(Number(result, row, "error_percent"),
                100 * (Number(result, row, "forecast") / at - 1), 1e-3);
    EXPECT_LE(Number(result, row, "low"), at);
    EXPECT_GE(Number(result, row, "high"), at);
  }
  EXPECT_EQ(std::get<int64_t>(result.table.rows[0][2]), 2);
  EXPECT_EQ(std::get<int64_t>(result.table.rows[21][2]), 0);
  EXPECT_EQ(std::get<std::string>(result.table.rows[21][3]), "own line");
  ASSERT_EQ(result.findings.size(), 3u);
  EXPECT_EQ(result.findings[0].claim, "a: every loss is forecast within 10 %");
  EXPECT_TRUE(result.findings[0].agrees);
  EXPECT_THAT(result.findings[0].evidence, HasSubstr("21 of 21 losses (100 %)"));
  EXPECT_THAT(result.findings[2].evidence, HasSubstr("curves: 4"));
}

TEST(ForecastStudy, RunThatGoesElsewhere_IsAnError) {
  const auto falling_faster = [](double by) {
    FinishedCurve late = Falling("a", 1);
    for (LossCurve::Point& point : late.points) {
      if (point.steps > 300) point.loss *= 1 - by * static_cast<double>(point.steps - 300) / 700;
    }
    return RunForecastStudy({late}, 0.3);
  };
  // A fifth less takes a power law 0.8^(-1/0.4) = 1.75 times the steps.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, falling_faster(0.2));
  EXPECT_FALSE(result.findings[0].agrees);
  EXPECT_NEAR(Number(result, 6, "error_percent"), 75, 3);
  EXPECT_THAT(result.findings[0].evidence, HasSubstr("largest 7"));
  // Half of it 5.7 times, which is further than forecasts go.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult never, falling_faster(0.5));
  EXPECT_EQ(std::get<std::string>(never.table.rows[6][7]), "never");
  EXPECT_THAT(never.findings[0].evidence, HasSubstr("largest never reached"));
}

TEST(ForecastStudy, LossesThatWereSeen_AreNotAsked) {
  FinishedCurve flat = Falling("a", 1);
  for (LossCurve::Point& point : flat.points) {
    if (point.steps > 300 && point.steps < 750) point.loss = 2;
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result, RunForecastStudy({flat}, 0.3));
  EXPECT_EQ(result.table.rows.size(), 3u);  // after 80, 90 and 100 %
}

TEST(ForecastStudy, BadInput_IsRefused) {
  const std::vector<FinishedCurve> good = {Falling("a", 1)};
  EXPECT_THAT(RunForecastStudy({}, 0.3),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no curves")));
  for (const double part : {0.0, 1.0, -1.0, std::nan("")}) {
    EXPECT_THAT(RunForecastStudy(good, part),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("above 0 and below 1")));
  }
  EXPECT_THAT(RunForecastStudy(good, 0.015),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a, 1 times, the first 15 of 1000 steps: ")));
  std::vector<FinishedCurve> bad = good;
  bad[0].points[50].loss = -1;
  EXPECT_THAT(RunForecastStudy({bad[0], good[0]}, 0.3),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("after 510 steps")));
  FinishedCurve flat = good[0];
  for (LossCurve::Point& point : flat.points) point.loss = 2;
  EXPECT_THAT(RunForecastStudy({flat}, 0.3),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nothing to forecast")));
}

}  // namespace
}  // namespace penstock
