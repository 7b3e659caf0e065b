#include "studies/theory/tuning.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <limits>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

// 100 ticks; the tail is the last 20.
Curve CurveOf(const std::function<double(double tick)>& gap) {
  Curve curve;
  for (int64_t tick = 0; tick <= 100; ++tick) {
    curve.push_back({tick, tick, gap(static_cast<double>(tick))});
  }
  return curve;
}
constexpr int64_t kTailBegin = 80;

TailShape Shape(const std::function<double(double tick)>& gap) {
  return ShapeOfTail(CurveOf(gap), kTailBegin);
}

TEST(ShapeOfTailTest, Line_HasTheKnownShape) {
  const TailShape tail = Shape([](double tick) { return 110 - tick; });  // 30, 29, ..., 10
  EXPECT_TRUE(tail.finite);
  EXPECT_DOUBLE_EQ(tail.mean, 20.0);
  EXPECT_NEAR(tail.variation, std::sqrt(110.0 / 3) / 20, 1e-12);  // variance (21^2 - 1) / 12
  EXPECT_EQ(tail.rising_fraction, 0.0);
  EXPECT_EQ(tail.rise_max, 0.0);
  EXPECT_NEAR(tail.total_variation, 1.0, 1e-12);
  EXPECT_LT(tail.log_slope, 0.0);
}

TEST(ShapeOfTailTest, Exponential_HasItsRateAsSlope) {
  const TailShape tail = Shape([](double tick) { return std::exp(-0.25 * tick); });
  EXPECT_NEAR(tail.log_slope, -0.25, 1e-12);
}

TEST(ShapeOfTailTest, Zigzag_RisesHalfOfTheTime) {
  const TailShape tail = Shape([](double tick) { return std::fmod(tick, 2) == 0 ? 1.0 : 2.0; });
  EXPECT_DOUBLE_EQ(tail.rising_fraction, 0.5);
  EXPECT_NEAR(tail.rise_max, 1.0 / (31.0 / 21), 1e-12);  // mean of 11 ones and 10 twos
  EXPECT_GT(tail.total_variation, 1e10);                 // it ends where it began
}

TEST(ShapeOfTailTest, NotFiniteAnywhere_IsNotFinite) {
  EXPECT_FALSE(Shape([](double tick) {
                 return tick == 10 ? std::numeric_limits<double>::infinity() : 1.0;
               }).finite);
  EXPECT_FALSE(Shape([](double tick) { return tick < 90 ? 1.0 : std::nan(""); }).finite);
}

TEST(IsStableTest, EveryLimit_Discards) {
  const TailShape good = {.finite = true,
                          .mean = 1.0,
                          .variation = 0.1,
                          .rising_fraction = 0.4,
                          .rise_max = 0.04,
                          .total_variation = 4.0,
                          .log_slope = 0.0};
  EXPECT_TRUE(IsStable(good));
  TailShape bad = good;
  bad.finite = false;
  EXPECT_FALSE(IsStable(bad));
  bad = good;
  bad.variation = 0.151;
  EXPECT_FALSE(IsStable(bad));
  bad = good;
  bad.rising_fraction = 0.46;
  EXPECT_FALSE(IsStable(bad));
  bad = good;
  bad.rise_max = 0.051;
  EXPECT_FALSE(IsStable(bad));
  bad = good;
  bad.total_variation = 5.1;
  EXPECT_FALSE(IsStable(bad));
  bad = good;
  bad.log_slope = 1.1e-4;
  EXPECT_FALSE(IsStable(bad));
}

TailShape Stable(double mean) { return {.finite = true, .mean = mean}; }
TailShape Unstable(double mean) { return {.finite = true, .mean = mean, .variation = 1.0}; }

TEST(ChooseStepTest, SmallestWithinFivePercentOfTheBest_IsChosen) {
  EXPECT_EQ(ChooseStep({Stable(3.0), Stable(1.06), Stable(1.04), Stable(1.0)}), 2u);
  EXPECT_EQ(ChooseStep({Stable(1.0), Stable(3.0)}), 0u);
}

TEST(ChooseStepTest, UnstableSteps_AreDiscardedHoweverGood) {
  EXPECT_EQ(ChooseStep({Unstable(0.1), Stable(3.0), Stable(2.0), Unstable(0.1)}), 2u);
}

TEST(ChooseStepTest, NoneStable_TakesTheBestFiniteMean) {
  EXPECT_EQ(ChooseStep({Unstable(3.0), Unstable(1.0), Unstable(1.02), TailShape()}), 1u);
  EXPECT_EQ(ChooseStep({Unstable(3.0), Unstable(1.04), Unstable(1.0)}), 2u);
}

TEST(ChooseStepTest, AllDiverged_TakesTheSmallest) {
  EXPECT_EQ(ChooseStep({TailShape(), TailShape()}), 0u);
}

TEST(CurvePlanTest, Points_AreDenseInTheTail) {
  const CurvePlan plan{.ticks = 100, .stride = 30, .tail_stride = 2};
  std::vector<int64_t> ticks;
  for (int64_t tick = 0; tick <= 100; ++tick) {
    if (plan.LooksAt(tick)) ticks.push_back(tick);
  }
  EXPECT_THAT(ticks,
              ::testing::ElementsAre(0, 30, 60, 80, 82, 84, 86, 88, 90, 92, 94, 96, 98, 100));
}

TEST(CurveRecorderTest, DivergedRun_StopsAndIsInfiniteFromThere) {
  const CurvePlan plan{.ticks = 4};
  CurveRecorder recorder(plan);
  EXPECT_TRUE(recorder.Add({0, 0, 1.0}));
  EXPECT_TRUE(recorder.Add({1, 1, 1e5}));
  EXPECT_FALSE(recorder.Add({2, 2, 1e7}));
  const Curve curve = recorder.Finish();
  ASSERT_EQ(curve.size(), 5u);
  EXPECT_EQ(curve[4].tick, 4);
  EXPECT_TRUE(std::isinf(curve[4].gap));
}

TEST(TuneTest, RunsTheWholeGridWithAllSeeds_AndJudgesTheMean) {
  SerialContext context;
  const CurvePlan plan{.ticks = 100};
  std::atomic<int> runs = 0;
  // Step 2 is best on average, step 4 for seed 0 alone.
  const auto run = [&](double step, int64_t seed) {
    ++runs;
    const double level = step == 1.0 ? 5.0 : step == 2.0 ? 2.0 : seed == 0 ? 1.0 : 9.0;
    return CurveOf([&](double tick) { return level + 1e-6 * (100 - tick); });
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const TunedMethod tuned,
                                Tune(PowersOfTwo(0, 2), 2, plan, run, context));
  EXPECT_EQ(runs, 6);
  EXPECT_EQ(tuned.learning_rate, 2.0);
  EXPECT_TRUE(tuned.stable);
  EXPECT_DOUBLE_EQ(tuned.final_mean(), 2.0);
  EXPECT_EQ(tuned.by_seed.size(), 2u);
}

TEST(PowersOfTwoTest, Grid_IsThePapers) {
  EXPECT_THAT(PowersOfTwo(-2, 1), ::testing::ElementsAre(0.25, 0.5, 1.0, 2.0));
  EXPECT_EQ(PipelineGrid().size(), 10u);
  EXPECT_EQ(LocalSgdGrid().size(), 11u);
}

}  // namespace
}  // namespace penstock
