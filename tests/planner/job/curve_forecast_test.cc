// When a run will reach a loss, from the beginning of its curve and the curves of earlier runs.
#include "planner/job/curve_forecast.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using Loss = std::function<double(double)>;

constexpr int64_t kSteps = 1000;
constexpr int64_t kSeen = 300;

// Has a point every ten steps up to `last`.
LossCurve Sampled(const Loss& loss, int64_t last = kSteps) {
  LossCurve curve;
  for (int64_t at = 10; at <= last; at += 10) {
    curve.points.push_back({at, loss(static_cast<double>(at))});
  }
  return curve;
}

// Takes `factor` times the steps for everything.
Loss Stretched(const Loss& loss, double factor) {
  return [loss, factor](double at) { return loss(at / factor); };
}

double Power(double at) { return 5 * std::pow(at, -0.3); }
double Decay(double at) { return std::exp(-at / 200); }
double Floored(double at) { return 1 + 3 * std::pow(at, -0.5); }
// Bends after 80 % of its steps, as the end of a rate's decay does.
double Bent(double at) { return Floored(at) - 0.0005 * std::max(0.0, at - 800); }

CurveForecast Forecast(const Loss& loss, const std::vector<Loss>& earlier, int64_t seen = kSeen) {
  std::vector<LossCurve> curves;
  for (const Loss& one : earlier) curves.push_back(Sampled(one));
  absl::StatusOr<CurveForecast> forecast = CurveForecast::Make(Sampled(loss, seen), kSteps, curves);
  EXPECT_THAT(forecast, IsOk());
  return *std::move(forecast);
}

// The steps at which `loss` is forecast to be as it is after `at` steps, as a part of these.
double Ratio(const CurveForecast& forecast, const Loss& loss, double at) {
  const auto steps = forecast.StepsTo(loss(at));
  return steps.has_value() ? steps->median / at : std::numeric_limits<double>::infinity();
}

// ------------------------------------------------------------------------------- as earlier runs

TEST(CurveForecast, StretchedRun_IsForecastByItsFactor) {
  for (const Loss& loss : {Loss(Power), Loss(Decay)}) {
    const Loss slower = Stretched(loss, 1.3);
    const CurveForecast forecast = Forecast(slower, {loss, Stretched(loss, 2)});
    EXPECT_EQ(forecast.way(), CurveForecast::Way::kEarlierRuns);
    EXPECT_EQ(forecast.earlier_runs(), 2);
    for (const double at : {310.0, 500.0, 1000.0}) {
      EXPECT_NEAR(Ratio(forecast, slower, at), 1, 0.005) << at;
    }
  }
}

TEST(CurveForecast, StretchedRun_GoesOnAfterTheLastStep) {
  const Loss slower = Stretched(Power, 1.3);
  const CurveForecast forecast = Forecast(slower, {Power, Power});
  EXPECT_NEAR(Ratio(forecast, slower, 1900), 1, 0.01);
  // The horizon is four times the job.
  EXPECT_TRUE(forecast.StepsTo(slower(3900)).has_value());
  EXPECT_FALSE(forecast.StepsTo(slower(4100)).has_value());
}

TEST(CurveForecast, RunLikeOneOfTwo_IsForecastAsThatOne) {
  const CurveForecast forecast = Forecast(Bent, {Bent, Stretched(Power, 2)});
  for (const double at : {500.0, 800.0, 900.0, 1000.0}) {
    EXPECT_NEAR(Ratio(forecast, Bent, at), 1, 0.05) << at << ": the prior pulls to the mean";
  }
}

TEST(CurveForecast, RunBetweenTwo_StaysBetweenThem) {
  const Loss between = [](double at) { return std::sqrt(Floored(at) * Power(at)); };
  const CurveForecast forecast = Forecast(between, {Floored, Power});
  for (const double at : {400.0, 700.0, 1000.0}) {
    EXPECT_NEAR(Ratio(forecast, between, at), 1, 0.01) << at;
  }
}

TEST(CurveForecast, HigherRun_BendsWhereTheOthersBend) {
  const Loss higher = [](double at) { return 1.02 * Bent(at); };
  const CurveForecast forecast = Forecast(higher, {Bent, [](double at) { return 1.1 * Bent(at); }});
  for (const double at : {700.0, 850.0, 1000.0}) {
    EXPECT_NEAR(Ratio(forecast, higher, at), 1, 0.01) << at;
  }
}

// ------------------------------------------------------------------------------------ on its line

TEST(CurveForecast, PowerLawAlone_IsRecovered) {
  for (const double exponent : {0.1, 0.3, 1.0}) {
    const Loss law = [exponent](double at) { return 7 * std::pow(at, -exponent); };
    for (const std::vector<Loss>& earlier : {std::vector<Loss>{}, {Floored}}) {
      const CurveForecast forecast = Forecast(law, earlier);
      EXPECT_EQ(forecast.way(), CurveForecast::Way::kOwnLine);
      for (const double at : {400.0, 1000.0, 3000.0}) {
        EXPECT_NEAR(Ratio(forecast, law, at), 1, 0.01) << exponent << ", " << at;
      }
    }
  }
}

TEST(CurveForecast, RunsThatTellNothingOfEachOther_LeaveTheLine) {
  // Power laws that were bent at random before the end of what is seen, and are straight from there on.
  std::vector<Loss> earlier;
  for (const double kink : {-0.5, 0.9, -1.5, 2.0}) {
    earlier.push_back([kink](double at) {
      return 5 * std::pow(at, -0.3) * std::exp(kink * std::pow(std::max(0.0, 1 - at / 140), 2));
    });
  }
  const Loss law = [](double at) { return 2 * std::pow(at, -0.8); };
  const CurveForecast forecast = Forecast(law, earlier);
  EXPECT_EQ(forecast.way(), CurveForecast::Way::kOwnLine);
  EXPECT_NEAR(Ratio(forecast, law, 1000), 1, 0.01);
}

TEST(CurveForecast, RunsOfAnotherLengthOrLaterBegin_AreLeftOut) {
  LossCurve late = Sampled(Bent);
  late.points.erase(late.points.begin(), late.points.begin() + 30);  // begins after 310 steps
  const auto forecast =
      CurveForecast::Make(Sampled(Power, kSeen), kSteps, {late, Sampled(Bent, 900), Sampled(Bent)});
  ASSERT_THAT(forecast, IsOk());
  EXPECT_EQ(forecast->earlier_runs(), 1);
  EXPECT_EQ(forecast->way(), CurveForecast::Way::kOwnLine);
}

TEST(CurveForecast, LossThatDoesNotFall_IsNeverReached) {
  const CurveForecast forecast = Forecast([](double) { return 2.0; }, {});
  EXPECT_FALSE(forecast.StepsTo(1.9).has_value());
}

TEST(CurveForecast, LossThatWasReached_IsTheEndOfWhatWasSeen) {
  for (const std::vector<Loss>& earlier : {std::vector<Loss>{}, {Power, Floored}}) {
    const auto steps = Forecast(Power, earlier).StepsTo(2 * Power(kSeen));
    ASSERT_TRUE(steps.has_value());
    EXPECT_NEAR(steps->median, kSeen, 1e-6);
    EXPECT_NEAR(steps->low, kSeen, 1e-6);
    EXPECT_NEAR(steps->high, kSeen, 1e-6);
  }
}

// ------------------------------------------------------------------------------------- properties

TEST(CurveForecast, LowerLosses_TakeNoFewerSteps) {
  const CurveForecast forecast = Forecast(Stretched(Bent, 1.4), {Bent, Floored, Power});
  double before = 0;
  for (double loss = 1.3; loss > 1.0; loss -= 0.001) {
    const auto steps = forecast.StepsTo(loss);
    if (!steps.has_value()) break;
    EXPECT_GE(steps->median, before);
    EXPECT_LE(steps->low, steps->median);
    EXPECT_GE(steps->high, steps->median);
    EXPECT_GE(steps->low, kSeen - 1e-6);
    before = steps->median;
  }
  EXPECT_GT(before, 800);
}

TEST(CurveForecast, MoreSeen_LeavesLessToErrIn) {
  const Loss slower = Stretched(Floored, 1.2);
  const auto width = [&](int64_t seen) {
    const CurveForecast forecast =
        Forecast(slower, {Floored, Stretched(Floored, 1.5), Stretched(Floored, 0.8)}, seen);
    const auto steps = forecast.StepsTo(slower(990));
    return steps.has_value() ? steps->high / steps->low : 0;
  };
  EXPECT_GT(width(300), width(600));
  EXPECT_GT(width(600), width(900));
  EXPECT_GT(width(900), 1);
}

// Runs that differ in their factors, and losses of single steps that are noisy.
TEST(CurveForecast, NoisyRuns_AreForecastWithinTheirIntervals) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  const auto losses = [&](double factor, size_t count) {
    std::vector<double> of_steps(count);
    for (size_t i = 0; i < count; ++i) {
      of_steps[i] = Bent(static_cast<double>(i + 1) / factor) + 0.02 * normal(random);
    }
    return of_steps;
  };
  int asked = 0;
  int close = 0;
  int held = 0;
  for (int run = 0; run < 40; ++run) {
    std::vector<LossCurve> earlier;
    for (int i = 0; i < 5; ++i) {
      earlier.push_back(CurveOf(losses(std::exp(0.1 * normal(random)), kSteps)));
    }
    const std::vector<double> own = losses(std::exp(0.1 * normal(random)), kSteps);
    const LossCurve whole = CurveOf(own);
    const auto forecast =
        CurveForecast::Make(CurveOf({own.begin(), own.begin() + kSeen}), kSteps, earlier);
    ASSERT_THAT(forecast, IsOk());
    for (const double at : {500.0, 700.0, 1000.0}) {
      const double loss = *whole.LossAt(at);
      const double reached = *whole.StepsTo(loss);
      const auto steps = forecast->StepsTo(loss);
      ++asked;
      if (!steps.has_value()) continue;
      close += std::abs(steps->median / reached - 1) < 0.15;
      held += steps->low <= reached && reached <= steps->high;
    }
  }
  EXPECT_EQ(asked, 120);
  EXPECT_GE(close, 90);
  EXPECT_GE(held, 100);
}

TEST(CurveForecast, OrderOfEarlierRuns_ChangesNothing) {
  const Loss slower = Stretched(Bent, 1.2);
  const auto a = Forecast(slower, {Bent, Floored, Power}).StepsTo(slower(900));
  const auto b = Forecast(slower, {Power, Bent, Floored}).StepsTo(slower(900));
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_NEAR(a->median, b->median, 1e-6 * a->median);
  EXPECT_NEAR(a->high, b->high, 1e-6 * a->high);
}

// -------------------------------------------------------------------------------------- bad input

TEST(CurveForecast, CurvesThatAreNone_AreRefused) {
  const LossCurve good = Sampled(Power, kSeen);
  const auto error_of = [&](const LossCurve& seen, int64_t steps,
                            const std::vector<LossCurve>& earlier) {
    return std::string(CurveForecast::Make(seen, steps, earlier).status().message());
  };
  EXPECT_THAT(error_of({}, kSteps, {}), HasSubstr("seen has 0 points"));
  EXPECT_THAT(error_of({{{10, 2.0}}}, kSteps, {}), HasSubstr("seen has 1 points"));
  EXPECT_THAT(error_of(good, 299, {}), HasSubstr("300 steps, the job 299"));
  EXPECT_THAT(error_of(good, kSteps, {good, {}}), HasSubstr("earlier run 2 has 0 points"));
  EXPECT_THAT(error_of({{{10, 2.0}, {10, 1.0}}}, kSteps, {}), HasSubstr("10 follows 10"));
  EXPECT_THAT(error_of({{{0, 2.0}, {10, 1.0}}}, kSteps, {}), HasSubstr("0 follows 0"));
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(error_of({{{10, 2.0}, {20, bad}}}, kSteps, {}), HasSubstr("after 20 steps"));
  }
  EXPECT_THAT(CurveForecast::Make(good, 299, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the job 299")));
}

TEST(CurveForecast, WholeRun_HasNothingLeftToForecast) {
  const CurveForecast forecast = Forecast(Power, {Power, Power, Floored}, kSteps);
  EXPECT_EQ(forecast.earlier_runs(), 0);
  EXPECT_NEAR(Ratio(forecast, Power, kSteps), 1, 0.001);
}

}  // namespace
}  // namespace penstock
