#include "studies/theory/problem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/random.h"
#include "studies/theory/problems.h"

namespace penstock {
namespace {

constexpr ProblemSize kSmallProblem = {.rows = 60, .width = 17};

std::vector<double> SomeWeights(int64_t width) {
  RandomStream random(3, 1);
  std::vector<double> weights(width);
  for (double& weight : weights) weight = random.Normal();
  return weights;
}

std::vector<Problem> AllProblems() {
  return {RandomQuadratic(kSmallProblem, 1), NesterovQuadratic(kSmallProblem, 2),
          SyntheticLogistic(kSmallProblem, 3, 0.01)};
}

TEST(ProblemTest, Gradient_EqualsFiniteDifferences) {
  for (const Problem& problem : AllProblems()) {
    SCOPED_TRACE(problem.name);
    std::vector<double> weights = SomeWeights(problem.width());
    std::vector<double> gradient(problem.width());
    problem.Gradient(weights, absl::MakeSpan(gradient));
    constexpr double kStep = 1e-5;
    for (int64_t i = 0; i < problem.width(); ++i) {
      const double weight = weights[i];
      weights[i] = weight + kStep;
      const double above = problem.Objective(weights);
      weights[i] = weight - kStep;
      const double below = problem.Objective(weights);
      weights[i] = weight;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-6 * (1 + std::fabs(gradient[i])));
    }
  }
}

TEST(ProblemTest, BlockGradients_OfAllMinibatches_AverageToTheGradient) {
  for (const Problem& problem : AllProblems()) {
    SCOPED_TRACE(problem.name);
    const std::vector<double> weights = SomeWeights(problem.width());
    std::vector<double> expected(problem.width());
    problem.Gradient(weights, absl::MakeSpan(expected));
    for (const int32_t stages : {1, 2, 5, 17}) {
      const Partition partition{stages, 10};
      const int64_t minibatches = problem.rows() / partition.batch;
      std::vector<double> mean(problem.width());
      for (int64_t minibatch = 0; minibatch < minibatches; ++minibatch) {
        std::vector<double> outputs(partition.batch);
        for (int32_t stage = 0; stage < stages; ++stage) {
          BlockForward(problem, partition, stage, minibatch,
                       weights.data() + partition.BlockBegin(stage, problem.width()),
                       absl::MakeSpan(outputs));
        }
        OutputGradients(problem, partition, minibatch, absl::MakeSpan(outputs));
        for (int32_t stage = 0; stage < stages; ++stage) {
          const int64_t begin = partition.BlockBegin(stage, problem.width());
          std::vector<double> block(partition.BlockEnd(stage, problem.width()) - begin);
          BlockGradient(problem, partition, stage, minibatch, outputs, weights.data() + begin,
                        absl::MakeSpan(block));
          for (size_t i = 0; i < block.size(); ++i) {
            mean[begin + static_cast<int64_t>(i)] += block[i] / static_cast<double>(minibatches);
          }
        }
      }
      for (int64_t i = 0; i < problem.width(); ++i) EXPECT_NEAR(mean[i], expected[i], 1e-9);
    }
  }
}

TEST(PartitionTest, Blocks_CoverTheWidthAndDifferByOneColumnAtMost) {
  for (const int32_t stages : {1, 3, 7, 17}) {
    const Partition partition{stages, 1};
    EXPECT_EQ(partition.BlockBegin(0, 17), 0);
    EXPECT_EQ(partition.BlockEnd(stages - 1, 17), 17);
    for (int32_t stage = 0; stage < stages; ++stage) {
      const int64_t size = partition.BlockEnd(stage, 17) - partition.BlockBegin(stage, 17);
      EXPECT_GE(size, 17 / stages);
      EXPECT_LE(size, 17 / stages + 1);
    }
  }
}

TEST(NesterovQuadraticTest, Hessian_IsTheTridiagonalMatrix) {
  constexpr double kMu = 0.01;
  const Problem problem = NesterovQuadratic(kSmallProblem, 5, kMu);
  for (int64_t i = 0; i < problem.width(); ++i) {
    for (int64_t j = 0; j < problem.width(); ++j) {
      double product = 0.0;
      for (int64_t row = 0; row < problem.rows(); ++row) {
        product += problem.features.At(row, i) * problem.features.At(row, j) /
                   static_cast<double>(problem.rows());
      }
      const double expected = i == j ? 2.0 + kMu : std::abs(i - j) == 1 ? -1.0 : 0.0;
      EXPECT_NEAR(product, expected, 1e-10) << i << ", " << j;
    }
  }
  // The eigenvalues are 2 - 2 cos(pi k / (d + 1)) + mu.
  const double angle = std::numbers::pi * 17 / 18;
  EXPECT_NEAR(problem.Smoothness(), 2.0 - 2.0 * std::cos(angle) + kMu, 1e-6);
}

TEST(SyntheticLogisticTest, Optimum_IsWhatGradientDescentApproaches) {
  const Problem problem = SyntheticLogistic(kSmallProblem, 7, 0.05);
  std::vector<double> weights(problem.width());
  std::vector<double> gradient(problem.width());
  const double step = 1.0 / problem.Smoothness();
  for (int i = 0; i < 2000; ++i) {
    problem.Gradient(weights, absl::MakeSpan(gradient));
    AddScaled(-step, gradient.data(), problem.width(), weights.data());
  }
  const double gap = problem.Objective(weights) - problem.optimum;
  EXPECT_GE(gap, -1e-12);
  EXPECT_LE(gap, 1e-9);
}

TEST(SyntheticLogisticTest, NearlySeparable_StillHasAnOptimum) {
  // Hardly more rows than parameters and hardly any l2: the weights become large.
  const Problem problem = SyntheticLogistic({.rows = 20, .width = 17}, 1, 1e-6);
  EXPECT_GT(problem.optimum, 0.0);
  EXPECT_LT(problem.optimum, 0.01);
}

TEST(ProblemsTest, Seed_NamesTheProblem) {
  EXPECT_EQ(RandomQuadratic(kSmallProblem, 4).targets, RandomQuadratic(kSmallProblem, 4).targets);
  EXPECT_NE(RandomQuadratic(kSmallProblem, 4).targets, RandomQuadratic(kSmallProblem, 5).targets);
}

}  // namespace
}  // namespace penstock
