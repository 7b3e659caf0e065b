// Descents against independent recursions.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/random.h"
#include "studies/theory/pipeline_descent.h"
#include "studies/theory/problems.h"
#include "studies/theory/random_descent.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr ProblemSize kSmall = {.rows = 40, .width = 13};
constexpr int64_t kBatch = 4;
constexpr double kStep = 0.05;

// The gradient of a minibatch, from the definition.
std::vector<double> MinibatchGradient(const Problem& problem, int64_t minibatch,
                                      const std::vector<double>& weights) {
  std::vector<double> gradient(problem.width());
  for (int64_t i = 0; i < problem.width(); ++i) gradient[i] = problem.l2 * weights[i];
  for (int64_t i = 0; i < kBatch; ++i) {
    const int64_t row = (minibatch * kBatch + i) % problem.rows();
    double prediction = 0.0;
    for (int64_t j = 0; j < problem.width(); ++j) {
      prediction += problem.features.At(row, j) * weights[j];
    }
    for (int64_t j = 0; j < problem.width(); ++j) {
      gradient[j] += problem.features.At(row, j) * problem.OutputGradient(row, prediction) / kBatch;
    }
  }
  return gradient;
}

void ExpectNear(absl::Span<const double> actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-12);
}

TEST(PipelineDescentTest, PipeDream_EqualsTheRecursionOfItsVersions) {
  for (const Problem& problem : {NesterovQuadratic(kSmall, 1), SyntheticLogistic(kSmall, 1, 0.1)}) {
    for (const int32_t stages : {1, 2, 4, 13}) {
      SCOPED_TRACE(problem.name + " " + std::to_string(stages));
      constexpr int64_t kMicrobatches = 50;
      const Partition partition{stages, kBatch};
      // versions[k] is the model with k updates of every stage; stage s of microbatch k reads version
      // max(0, k - (S-1-s)).
      std::vector<std::vector<double>> versions = {std::vector<double>(problem.width())};
      for (int64_t k = 0; k < kMicrobatches; ++k) {
        std::vector<double> read(problem.width());
        for (int32_t stage = 0; stage < stages; ++stage) {
          const int64_t version = std::max<int64_t>(0, k - (stages - 1 - stage));
          for (int64_t i = partition.BlockBegin(stage, problem.width());
               i < partition.BlockEnd(stage, problem.width()); ++i) {
            read[i] = versions[version][i];
          }
        }
        const std::vector<double> gradient = MinibatchGradient(problem, k, read);
        versions.push_back(versions.back());
        for (int64_t i = 0; i < problem.width(); ++i) versions.back()[i] -= kStep * gradient[i];
      }
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence sequence,
                                    PipeDreamSequence(stages, kMicrobatches));
      const DescentResult result = PipelineDescent(
          problem, sequence,
          {.learning_rate = kStep, .batch = kBatch, .plan = {.ticks = sequence.ticks}});
      ExpectNear(result.weights, versions.back());
      EXPECT_EQ(result.curve.back().updates, kMicrobatches * stages);
      EXPECT_NEAR(result.curve.back().gap, problem.Objective(versions.back()) - problem.optimum,
                  1e-9);
    }
  }
}

TEST(PipelineDescentTest, LocalSgd_EqualsReplicasAverageAfterAverage) {
  const Problem problem = SyntheticLogistic(kSmall, 2, 0.1);
  const LocalSgdShape shape{.stages = 3, .replicas = 4, .local_steps = 3};
  constexpr int64_t kRounds = 3;
  std::vector<double> average(problem.width());
  for (int64_t round = 0; round < kRounds; ++round) {
    std::vector<double> next(problem.width());
    for (int64_t replica = 0; replica < shape.replicas; ++replica) {
      std::vector<double> weights = average;
      for (int64_t step = 0; step < shape.local_steps; ++step) {
        const int64_t minibatch = round * shape.round() + step * shape.replicas + replica;
        const std::vector<double> gradient = MinibatchGradient(problem, minibatch, weights);
        for (int64_t i = 0; i < problem.width(); ++i) weights[i] -= kStep * gradient[i];
      }
      for (int64_t i = 0; i < problem.width(); ++i) {
        next[i] += weights[i] / static_cast<double>(shape.replicas);
      }
    }
    average = next;
  }
  const TickSequence sequence = LocalSgdSequence(shape, kRounds * shape.round());
  const DescentResult result = PipelineDescent(problem, sequence,
                                               {.learning_rate = kStep,
                                                .batch = kBatch,
                                                .replicas = shape.replicas,
                                                .round = shape.round(),
                                                .plan = {.ticks = sequence.ticks}});
  ExpectNear(result.weights, average);
}

TEST(PipelineDescentTest, Observer_SeesEveryUpdateOnce) {
  const Problem problem = RandomQuadratic(kSmall, 3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence sequence, PipeDreamSequence(4, 10));
  int64_t expected = 0;
  PipelineDescent(problem, sequence,
                  {.learning_rate = kStep, .batch = kBatch, .plan = {.ticks = sequence.ticks}}, {},
                  [&](const UpdateView& update) { EXPECT_EQ(update.k, expected++); });
  EXPECT_EQ(expected, sequence.updates());
}

RandomDescentOptions Options(int32_t stages, int64_t delta, absl::Span<const int64_t> clock) {
  return {.learning_rate = kStep,
          .partition = {stages, kBatch},
          .minibatches = kSmall.rows / kBatch,
          .delta = delta,
          .seed = 11,
          .plan = {.ticks = static_cast<int64_t>(clock.size()) - 1},
          .updates_by_tick = clock};
}

// One update a tick.
std::vector<int64_t> PlainClock(int64_t updates) {
  std::vector<int64_t> clock(updates + 1);
  for (int64_t tick = 0; tick <= updates; ++tick) clock[tick] = tick;
  return clock;
}

TEST(RandomDescentTest, WithoutDelay_EqualsBlockCoordinateDescent) {
  const Problem problem = SyntheticLogistic(kSmall, 4, 0.1);
  const std::vector<int64_t> clock = PlainClock(200);
  const RandomDescentOptions options = Options(3, 0, clock);
  std::vector<double> weights(problem.width());
  RandomDraw draw;
  for (int64_t k = 0; k < 200; ++k) {
    DrawUpdate(options, k, draw);
    const std::vector<double> gradient = MinibatchGradient(problem, draw.minibatch, weights);
    for (int64_t i = options.partition.BlockBegin(draw.stage, problem.width());
         i < options.partition.BlockEnd(draw.stage, problem.width()); ++i) {
      weights[i] -= kStep * gradient[i];
    }
  }
  ExpectNear(RandomDescent(problem, options).weights, weights);
}

TEST(RandomDescentTest, WithDelay_EqualsTheDefinitionWithAllModelsKept) {
  const Problem problem = NesterovQuadratic(kSmall, 5);
  for (const int64_t delta : {1, 7, 60}) {
    const std::vector<int64_t> clock = PlainClock(150);
    const RandomDescentOptions options = Options(4, delta, clock);
    std::vector<std::vector<double>> models = {std::vector<double>(problem.width())};
    RandomDraw draw;
    for (int64_t k = 0; k < 150; ++k) {
      DrawUpdate(options, k, draw);
      std::vector<double> read(problem.width());
      for (int32_t stage = 0; stage < 4; ++stage) {
        for (int64_t i = options.partition.BlockBegin(stage, problem.width());
             i < options.partition.BlockEnd(stage, problem.width()); ++i) {
          read[i] = models[k - draw.delays[stage]][i];
        }
      }
      const std::vector<double> gradient = MinibatchGradient(problem, draw.minibatch, read);
      models.push_back(models.back());
      for (int64_t i = options.partition.BlockBegin(draw.stage, problem.width());
           i < options.partition.BlockEnd(draw.stage, problem.width()); ++i) {
        models.back()[i] -= kStep * gradient[i];
      }
    }
    ExpectNear(RandomDescent(problem, options).weights, models.back());
  }
}

TEST(DrawUpdateTest, Delays_NeverExceedTheBoundAndReachIt) {
  const std::vector<int64_t> clock = PlainClock(1);
  const RandomDescentOptions options = Options(5, 20, clock);
  RandomDraw draw;
  int64_t most = 0;
  double sum = 0.0;
  std::vector<int> stages(5);
  std::vector<int> minibatches(options.minibatches);
  constexpr int64_t kDraws = 20'000;
  for (int64_t k = 0; k < kDraws; ++k) {
    DrawUpdate(options, k, draw);
    for (const int64_t delay : draw.delays) {
      ASSERT_GE(delay, 0);
      ASSERT_LE(delay, std::min<int64_t>(k, options.delta));
      most = std::max(most, delay);
      sum += static_cast<double>(delay);
    }
    ++stages.at(draw.stage);
    ++minibatches.at(draw.minibatch);
  }
  EXPECT_EQ(most, options.delta);
  EXPECT_NEAR(sum / (5.0 * kDraws), 10.0, 0.1);
  for (const int count : stages) EXPECT_NEAR(count, kDraws / 5.0, 300);
  for (const int count : minibatches) EXPECT_NEAR(count, kDraws / 10.0, 250);
}

// w <- w - a w(tau updates ago), on one block.
bool DelayedDescentIsStable(int64_t tau, double a) {
  BlockHistory history({.stages = 1, .batch = 1}, 1, tau);
  const double start = -1.0;
  history.Update(0, {&start, 1});
  double largest_late = 0.0;
  constexpr int64_t kUpdates = 20'000;
  for (int64_t k = 0; k < kUpdates; ++k) {
    const double scaled = a * *history.Read(0, std::min(tau, history.updates()));
    history.Update(0, {&scaled, 1});
    if (k > kUpdates / 2) largest_late = std::max(largest_late, std::fabs(history.weights()[0]));
    if (largest_late > 1e6) return false;
  }
  return largest_late < 1.0;
}

TEST(BlockHistoryTest, DelayedDescent_IsStableExactlyBelowTheKnownStep) {
  for (int64_t tau = 0; tau <= 8; ++tau) {
    const double limit = 2.0 * std::sin(std::numbers::pi / static_cast<double>(4 * tau + 2));
    EXPECT_TRUE(DelayedDescentIsStable(tau, 0.99 * limit)) << tau;
    EXPECT_FALSE(DelayedDescentIsStable(tau, 1.01 * limit)) << tau;
  }
}

TEST(UpdatesByTickTest, Counts_EndWithAllUpdates) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence sequence, PipeDreamSequence(3, 6));
  const std::vector<int64_t> updates = UpdatesByTick(sequence);
  EXPECT_EQ(static_cast<int64_t>(updates.size()), sequence.ticks + 1);
  EXPECT_EQ(updates.front(), 0);
  EXPECT_EQ(updates[3], 0);  // the first backward is in tick 3, on the last stage
  EXPECT_EQ(updates[4], 1);
  EXPECT_EQ(updates.back(), sequence.updates());
}

}  // namespace
}  // namespace penstock
