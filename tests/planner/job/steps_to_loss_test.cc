// What delay costs in steps, learned from loss curves.
#include "planner/job/steps_to_loss.h"

#include <gmock/gmock.h>

#include <cmath>

#include "job/defaults.h"
#include "job/resolve.h"
#include "tests/planner/job/planning_input.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::DoubleNear;
using ::testing::Optional;

// ------------------------------------------------------------------------------------ curves

TEST(SmoothLoss, IsTheMeanOfTheLastEighth) {
  std::vector<double> losses(80, 5.0);
  for (int i = 70; i < 80; ++i) losses[i] = i < 75 ? 2.0 : 1.0;
  EXPECT_DOUBLE_EQ(SmoothLoss(losses, 80), 1.5);       // of ten
  EXPECT_DOUBLE_EQ(SmoothLoss(losses, 72), 39.0 / 9);  // 5 (seven times) and 2 (twice)
  EXPECT_DOUBLE_EQ(SmoothLoss({4, 3, 2, 1}, 4), 2.5);  // at least four
}

TEST(StepsTo, IsTheFirstStepWhoseMeanIsThere) {
  EXPECT_EQ(StepsTo(2.5, {4, 3, 2, 1, 0}), 4);
  EXPECT_EQ(StepsTo(2.0, {4, 3, 2, 1, 0}), 5);  // (3 + 2 + 1 + 0) / 4 = 1.5
  EXPECT_EQ(StepsTo(1.0, {4, 3, 2, 1, 0}), std::nullopt);
  EXPECT_EQ(StepsTo(9.0, {4, 3, 2}), std::nullopt);  // fewer than four
}

TEST(CurveOf, KeepsTheLeastLossAtStepsFurtherAndFurtherApart) {
  const LossCurve curve = CurveOf({8, 8, 8, 8, 4, 4, 4, 4, 9, 9, 9, 9});
  // Means of four: 8 7 6 5 4, then they rise; the last step is always there.
  EXPECT_THAT(curve.points, ::testing::ElementsAre(LossCurve::Point{4, 8}, LossCurve::Point{5, 7},
                                                   LossCurve::Point{6, 6}, LossCurve::Point{7, 5},
                                                   LossCurve::Point{8, 4}, LossCurve::Point{10, 4},
                                                   LossCurve::Point{12, 4}));
  EXPECT_THAT(curve.StepsTo(5), Optional(7.0));
  // Half of the way from 7 to 8 steps, by their logarithms.
  EXPECT_THAT(curve.StepsTo(4.5), Optional(DoubleNear(std::sqrt(56.0), 1e-9)));
  EXPECT_EQ(curve.StepsTo(3.9), std::nullopt);
  EXPECT_EQ(curve.StepsTo(8.1), std::nullopt) << "before the first point";
  EXPECT_THAT(curve.LossAt(6), Optional(6.0));
  EXPECT_EQ(curve.LossAt(13), std::nullopt);
}

TEST(CurveOf, LongTrainings_KeepAFewPoints) {
  std::vector<double> losses(8192);
  for (size_t i = 0; i < losses.size(); ++i) losses[i] = 1.0 / static_cast<double>(i + 1);
  const LossCurve curve = CurveOf(losses, 1024);
  EXPECT_LE(curve.points.size(), LossCurve::kPointsMax);
  EXPECT_EQ(curve.steps(), 1 + 8191 * 1024);
}

TEST(CurveOf, SlowerTraining_TakesItsRatioOfSteps) {
  std::vector<double> fast(400);
  std::vector<double> slow(800);
  for (size_t i = 0; i < slow.size(); ++i) {
    if (i < fast.size()) fast[i] = std::pow(static_cast<double>(i + 1), -0.3);
    slow[i] = std::pow(static_cast<double>(i + 1) / 2, -0.3);
  }
  const LossCurve one = CurveOf(fast);
  const LossCurve two = CurveOf(slow);
  for (const double loss : {0.3, 0.25, 0.2}) {  // where means are of more than four
    EXPECT_NEAR(*two.StepsTo(loss) / *one.StepsTo(loss), 2.0, 0.04) << loss;
  }
}

// ------------------------------------------------------------------------------- the regression

TEST(NormalRegression, OneObservation_IsWeightedWithThePriorByPrecision) {
  // Before: 1 +- 2. Observed: 3 w = 9 +- 1.5. After: precision 1/4 + 9/2.25 = 4.25, and the mean is
  // (1/4 * 1 + 3 * 9 / 2.25) / 4.25 = 12.25 / 4.25.
  NormalRegression regression(std::vector<NormalRegression::Weight>{{1, 2}});
  EXPECT_DOUBLE_EQ(regression.Predict({{0, 2.0}}).mean, 2);
  EXPECT_DOUBLE_EQ(regression.Predict({{0, 2.0}}).variance, 16);
  regression.Observe({.x = {{0, 3.0}}, .y = 9, .precision = 1 / 2.25});
  EXPECT_NEAR(regression.Predict({{0, 1.0}}).mean, 12.25 / 4.25, 1e-12);
  EXPECT_NEAR(regression.Predict({{0, 1.0}}).variance, 1 / 4.25, 1e-12);
}

TEST(NormalRegression, TwoWeights_AreSolvedTogether) {
  // Prior 0 +- 1 of both; w0 + w1 = 3 +- 1: precision [[2, 1], [1, 2]], so both means are 1.
  NormalRegression regression(std::vector<NormalRegression::Weight>{{0, 1}, {0, 1}});
  regression.Observe({.x = {{0, 1.0}, {1, 1.0}}, .y = 3});
  EXPECT_NEAR(regression.Predict({{0, 1.0}}).mean, 1, 1e-12);
  EXPECT_NEAR(regression.Predict({{0, 1.0}}).variance, 2.0 / 3, 1e-12);
  // What was observed is better known than what was not.
  EXPECT_NEAR(regression.Predict({{0, 1.0}, {1, 1.0}}).variance, 2.0 / 3, 1e-12);
  EXPECT_NEAR(regression.Predict({{0, 1.0}, {1, -1.0}}).variance, 2, 1e-12);
}

TEST(NormalRegression, Differences_AreThoseOfANumberThatNobodyKnows) {
  const auto posterior = [](double common) {
    NormalRegression regression(std::vector<NormalRegression::Weight>{{0, 1}});
    regression.ObserveDifferences({{.x = {{0, 1.0}}, .y = common + 2}, {.x = {}, .y = common}});
    return regression.Predict({{0, 1.0}});
  };
  // w = 2 +- sqrt(2): precision 1 + 1/2, mean (2 / 2) / 1.5.
  EXPECT_NEAR(posterior(0).mean, 2.0 / 3, 1e-12);
  EXPECT_NEAR(posterior(0).variance, 2.0 / 3, 1e-12);
  EXPECT_NEAR(posterior(100).mean, 2.0 / 3, 1e-12);
  NormalRegression alone(std::vector<NormalRegression::Weight>{{0, 1}});
  alone.ObserveDifferences({{.x = {{0, 1.0}}, .y = 7}});
  EXPECT_DOUBLE_EQ(alone.Predict({{0, 1.0}}).mean, 0);
  EXPECT_DOUBLE_EQ(alone.Predict({{0, 1.0}}).variance, 1);
}

// ------------------------------------------------------------------------------------ the model

UpdatePattern Late(double delay, const std::string& method = "late") {
  return {.method = method, .synchronous = false, .delay = delay};
}
const UpdatePattern kDraining = {.method = "1f1b"};

// Takes `factor` times the steps of (steps)^-0.3 for everything.
ObservedRun RunOf(const UpdatePattern& pattern, double factor, const std::string& setup = "a") {
  std::vector<double> losses(800);
  for (size_t i = 0; i < losses.size(); ++i) {
    losses[i] = std::pow(static_cast<double>(i + 1) / factor, -0.3);
  }
  return {.setup = setup, .steps = 800, .first = 20, .pattern = pattern, .curve = CurveOf(losses)};
}

TEST(StepsToLoss, Synchronous_IsOneExactly) {
  const StepsToLoss model({RunOf(Late(1), 2), RunOf(kDraining, 1)});
  for (const double progress : {0.1, 1.0}) {
    const StepsFactor factor = model.Predict(kDraining, "a", progress);
    EXPECT_EQ(factor.median(), 1);
    EXPECT_EQ(factor.expected(), 1);
    EXPECT_EQ(factor.low(), 1);
    EXPECT_EQ(factor.high(), 1);
  }
}

TEST(StepsToLoss, WithoutRuns_IsThePrior) {
  const StepsToLoss model({});
  const StepsFactor factor = model.Predict(Late(2), "a", 1);
  // At the end of the job nothing of progress counts, and log(1) update in a step is 0. What is left: the delay, of all,
  // the method, the setup and both together (0.2 each), times 2; the constants of the method, here and everywhere
  // (0.15 each); and the noise (0.125).
  const double variance = 4 * 0.16 + 2 * 0.0225 + 0.015625;
  EXPECT_NEAR(factor.log_mean, 0.6, 1e-12);
  EXPECT_NEAR(factor.log_deviation, std::sqrt(variance), 1e-12);
  EXPECT_NEAR(factor.expected(), std::exp(0.6 + 0.5 * variance), 1e-12);
  EXPECT_NEAR(std::log(factor.high() / factor.median()), 1.645 * factor.log_deviation, 1e-12);
}

TEST(StepsToLoss, LongerDelay_IsNeverFree) {
  const StepsToLoss model({});
  double before = 1;
  for (const double delay : {0.1, 0.5, 1.0, 3.0, 7.0}) {
    for (const double updates : {1.0, 8.0}) {
      UpdatePattern pattern = Late(delay);
      pattern.updates_per_step = updates;
      EXPECT_GT(model.Predict(pattern, "a", 1).median(), 1);
    }
    const double expected = model.Predict(Late(delay), "a", 1).expected();
    EXPECT_GT(expected, before);
    before = expected;
  }
}

TEST(StepsToLoss, WhatRanInTheSetup_IsPredictedAgain) {
  for (const double factor : {0.7, 1.0, 1.6}) {
    const StepsToLoss model({RunOf(kDraining, 1), RunOf(Late(0.5), std::sqrt(factor)),
                             RunOf(Late(1), factor), RunOf(Late(1), factor)});
    const StepsFactor predicted = model.Predict(Late(1), "a", 0.5);
    EXPECT_NEAR(predicted.median(), factor, 0.1 * factor);
    EXPECT_LT(predicted.low(), factor);
    EXPECT_GT(predicted.high(), factor);
    EXPECT_EQ(model.RunsOf("a"), 3);
  }
}

TEST(StepsToLoss, OtherMethodsAndSetups_LearnLessOfIt) {
  std::vector<ObservedRun> runs = {RunOf(kDraining, 1)};
  for (const double delay : {0.5, 1.0, 2.0}) runs.push_back(RunOf(Late(delay), 1));
  const StepsToLoss model(runs);
  const double before = StepsToLoss({}).Predict(Late(1), "a", 0.5).median();
  const double same = model.Predict(Late(1), "a", 0.5).median();
  const double other_method = model.Predict(Late(1, "other"), "a", 0.5).median();
  const double other_setup = model.Predict(Late(1, "other"), "b", 0.5).median();
  EXPECT_LT(same, other_method);
  EXPECT_LT(other_method, other_setup);
  EXPECT_LT(other_setup, before);
  EXPECT_LT(model.Predict(Late(1), "a", 0.5).log_deviation,
            model.Predict(Late(1, "other"), "b", 0.5).log_deviation);
}

TEST(StepsToLoss, OneSetupAlone_IsComparedWithItselfOnly) {
  // Another setup whose losses are lower has nothing to do with it.
  std::vector<ObservedRun> runs = {RunOf(kDraining, 1), RunOf(Late(1), 1.3)};
  const StepsFactor before = StepsToLoss(runs).Predict(Late(1), "a", 0.5);
  runs.push_back(RunOf(kDraining, 0.01, "b"));
  const StepsFactor after = StepsToLoss(runs).Predict(Late(1), "a", 0.5);
  EXPECT_NEAR(after.log_mean, before.log_mean, 1e-12);
  EXPECT_NEAR(after.log_deviation, before.log_deviation, 1e-12);
}

TEST(StepsToLoss, Progress_IsThatOfASynchronousRun) {
  const StepsToLoss model({RunOf(Late(1), 2), RunOf(kDraining, 1)});
  const LossCurve curve = RunOf(kDraining, 1).curve;
  EXPECT_THAT(model.ProgressAt("a", *curve.LossAt(400)), Optional(DoubleNear(0.5, 0.02)));
  EXPECT_EQ(model.ProgressAt("a", 1e-3), std::nullopt);
  EXPECT_EQ(model.ProgressAt("b", 0.3), std::nullopt);
}

// ---------------------------------------------------------------------------- patterns of updates

UpdatePattern PatternOf(const std::string& method, const std::vector<LayerRange>& layers) {
  v1::JobSpec spec = InputOf(kPlannedJob, Alike(4)).spec;
  SetMethod(method, /*keeps_optimizer=*/false, spec);
  spec.mutable_pipeline()->set_stages(static_cast<int32_t>(layers.size()));
  FillDefaults(spec);
  const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  EXPECT_THAT(job, IsOk());
  const absl::StatusOr<UpdatePattern> pattern = UpdatePatternOf(*job, layers);
  EXPECT_THAT(pattern, IsOk());
  return *pattern;
}

TEST(UpdatePatternOf, Methods_HaveTheDelaysOfTheirClosedForms) {
  const std::vector<LayerRange> layers = {{0, 3}, {3, 3}, {6, 3}};
  EXPECT_TRUE(PatternOf("1f1b", layers).synchronous);
  EXPECT_TRUE(PatternOf("zb-h2", layers).synchronous);
  EXPECT_EQ(PatternOf("zb-h2", layers).delay, 0);

  const UpdatePattern double_buffered = PatternOf("pipedream-2bw", layers);
  EXPECT_FALSE(double_buffered.synchronous);
  EXPECT_DOUBLE_EQ(double_buffered.delay, 1);
  EXPECT_DOUBLE_EQ(double_buffered.updates_per_step, 1);

  // Stage s is 2 - s updates late, and the stages with more parameters count more.
  const UpdatePattern pipedream = PatternOf("pipedream", layers);
  EXPECT_DOUBLE_EQ(pipedream.updates_per_step, 8);
  EXPECT_GT(pipedream.delay, 0);
  EXPECT_LT(pipedream.delay, 2);
  EXPECT_GT(PatternOf("pipedream", {{0, 7}, {7, 1}, {8, 1}}).delay, pipedream.delay);
  EXPECT_LT(PatternOf("pipedream", {{0, 1}, {1, 1}, {2, 7}}).delay, pipedream.delay);

  // The last stage is never late, and one stage alone is not either.
  EXPECT_GT(PatternOf("paci", layers).delay, 0);
  EXPECT_EQ(PatternOf("paci", {{0, 9}}).delay, 0);

  // Of two replicas of the model each makes half of the updates, and misses the other's half of the mean.
  const UpdatePattern local = PatternOf("local-sgd", {{0, 5}, {5, 4}});
  EXPECT_FALSE(local.synchronous);
  EXPECT_DOUBLE_EQ(local.delay, 0.5);
  EXPECT_DOUBLE_EQ(local.updates_per_step, 4);
}

}  // namespace
}  // namespace penstock
