// What late gradients do to training, on scalar quadratics f(w) = w^2 / 2 whose gradients come `delay` updates
// late, through the optimizers and the history of the product: the limits of stability that the papers' methods
// rest on.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <numbers>
#include <optional>

#include "compute/backend.h"
#include "compute/update_history.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

// A weight, alone in its array, with the optimizer's state and the history.
class Scalar {
 public:
  explicit Scalar(const OptimizerConfig& config, HistoryOptions history = {})
      : backend_(*MakeCpuBackend(1)),
        optimizer_(*backend_->MakeOptimizer(config, {{0, 1, true, 0}})),
        history_(*UpdateHistory::Create(*backend_, history, 1, 1, false)),
        state_(2, 0.0f) {
    versions_ = *WeightVersions::Create(backend_->pool(), 1, false, 1);
    *weight() = 1.0f;
    for (size_t slot = 0; slot < optimizer_->state_names().size(); ++slot) {
      arrays_.push_back(&state_[slot]);
    }
  }

  double w() { return *weight(); }
  // The weight moved by `ahead` updates.
  double Predicted(int64_t ahead) {
    return ahead == 0 ? w() : *history_.Predicted(versions_.current(), ahead).weights();
  }
  void Step(double gradient, double rate, bool feed_back = false) {
    const auto g = static_cast<float>(gradient);
    const float scale = 1.0f;
    const int64_t update = versions_.current().number + 1;
    const auto transition = *versions_.Advance(update, /*keep_replaced=*/false, update);
    history_.BeforeStep(transition);
    EXPECT_THAT(optimizer_->Step({.weights = transition.from->weights(),
                                  .next_weights = transition.to->weights(),
                                  .gradients = &g,
                                  .state = arrays_,
                                  .gradient_scales = {&scale, 1},
                                  .learning_rate = rate,
                                  .update = update}),
                IsOk());
    history_.AfterStep(transition, feed_back);
  }

 private:
  float* weight() { return versions_.current().weights(); }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Optimizer> optimizer_;
  UpdateHistory history_;
  WeightVersions versions_;
  std::vector<float> state_;
  std::vector<float*> arrays_;
};

// Whether a sequence of weights dies out. `step` makes the next weight.
template <typename NextWeight>
bool DiesOut(NextWeight step) {
  constexpr int kSteps = 3000;
  double middle = 0.0;
  double end = 0.0;
  for (int t = 0; t < kSteps; ++t) {
    const double w = std::abs(step());
    if (!(w < 1e12)) return false;
    if (t >= 1000 && t < 1500) middle = std::max(middle, w);
    if (t >= kSteps - 500) end = std::max(end, w);
  }
  return end < 1e-20 || end < middle;
}

// Plain descent whose gradients are those of `delay` updates before.
bool IsStable(Scalar& scalar, int delay, double rate) {
  std::deque<double> read(delay + 1, scalar.w());
  return DiesOut([&] {
    scalar.Step(read.front(), rate);
    read.pop_front();
    read.push_back(scalar.w());
    return scalar.w();
  });
}

// rate < 2 sin(pi / (4 delay + 2)).
TEST(DelayedDescent, Sgd_IsStableUpToTheClosedForm) {
  for (const int delay : {0, 1, 2, 3, 5, 8, 15}) {
    const double limit = 2.0 * std::sin(std::numbers::pi / (4.0 * delay + 2.0));
    Scalar below(SgdConfig{});
    EXPECT_TRUE(IsStable(below, delay, 0.98 * limit)) << delay;
    Scalar above(SgdConfig{});
    EXPECT_FALSE(IsStable(above, delay, 1.02 * limit)) << delay;
  }
}

// NAdamW in the linear range of its denominator (a large epsilon), where it is Nesterov's method with the
// gradient discounted by 1 - momentum: the limits grow by the factor 1 / (1 - momentum) over those without.
TEST(DelayedDescent, NAdamW_IsStableUpToTheLimitsOfTheDiscountedLookAhead) {
  struct Case {
    int delay;
    double momentum, limit;
  };
  constexpr double kEpsilon = 1e8;
  for (const Case& c : {Case{1, 0.9, 2.531},
                        {3, 0.99, 0.495},
                        {3, 0.9, 0.464},
                        {7, 0.99, 0.168},
                        {7, 0.9, 0.176},
                        {15, 0.99, 0.0729},
                        {15, 0.9, 0.0834}}) {
    // The momentum's warm-up is over at once.
    const NAdamWConfig config = {.beta1 = c.momentum,
                                 .beta2 = 0.999,
                                 .epsilon = kEpsilon,
                                 .weight_decay = 0.0,
                                 .momentum_decay = 1e6};
    Scalar below(config);
    EXPECT_TRUE(IsStable(below, c.delay, 0.96 * c.limit * kEpsilon)) << c.delay << c.momentum;
    Scalar above(config);
    EXPECT_FALSE(IsStable(above, c.delay, 1.06 * c.limit * kEpsilon)) << c.delay << c.momentum;
  }
}

// PipeMare's model of the discrepancy between forward and backward weights,
//   gradient = (1 + d) w_forward - d w_backward,
// with the backward's weights as they are, or predicted back by their momentum average.
bool IsStableWithDiscrepancy(int delay, double discrepancy, double rate, bool corrected) {
  const double decay = 1.0 - 2.0 / (delay + 1.0);
  Scalar scalar(SgdConfig{}, {.momentum_average = corrected, .average_decay = decay});
  std::deque<double> read(delay + 1, scalar.w());
  return DiesOut([&] {
    const double backward = scalar.Predicted(corrected ? -delay : 0);
    scalar.Step((1.0 + discrepancy) * read.front() - discrepancy * backward, rate);
    read.pop_front();
    read.push_back(scalar.w());
    return scalar.w();
  });
}

TEST(DiscrepancyCorrection, WidensTheStableRangeAsTheTableSays) {
  struct Case {
    int delay;
    double discrepancy, without, with;
  };
  for (const Case& c :
       {Case{7, 1.0, 0.084, 0.186}, {7, 5.0, 0.025, 0.140}, {15, 5.0, 0.0118, 0.0663}}) {
    for (const bool corrected : {false, true}) {
      const double limit = corrected ? c.with : c.without;
      EXPECT_TRUE(IsStableWithDiscrepancy(c.delay, c.discrepancy, 0.96 * limit, corrected))
          << c.delay << ", " << c.discrepancy << ", corrected " << corrected;
      EXPECT_FALSE(IsStableWithDiscrepancy(c.delay, c.discrepancy, 1.04 * limit, corrected))
          << c.delay << ", " << c.discrepancy << ", corrected " << corrected;
    }
  }
}

// delta = g delta + (1 - g) (w' - w) with g = 1/4, and u = w - 2 delta two updates back, by hand:
//   w = 1; gradient 1 at the rate 1/2:    w = 1/2, delta = 3/4 (-1/2) = -3/8,               u = 5/4
//   gradient 1/2 at the same rate:        w = 1/4, delta = -3/32 + 3/4 (-1/4) = -9/32,      u = 13/16
TEST(DiscrepancyCorrection, TwoUpdates_AreThoseWorkedOutByHand) {
  Scalar scalar(SgdConfig{}, {.momentum_average = true, .average_decay = 0.25});
  scalar.Step(1.0, 0.5);
  EXPECT_EQ(scalar.w(), 0.5);
  EXPECT_EQ(scalar.Predicted(-2), 1.25);
  scalar.Step(0.5, 0.5);
  EXPECT_EQ(scalar.w(), 0.25);
  EXPECT_EQ(scalar.Predicted(-2), 0.8125);
}

// With gradients one update late: how far training is from the one with fresh gradients, at most.
double DistanceFromFresh(const SgdConfig& config, double rate, int delay, bool feeds_back) {
  Scalar fresh(config);
  Scalar late(config, {.last_update = feeds_back});
  std::deque<double> read(delay + 1, late.w());
  double distance = 0.0;
  for (int t = 0; t < 60; ++t) {
    fresh.Step(fresh.w(), rate);
    late.Step(read.front(), rate, feeds_back && t > 0);
    read.pop_front();
    read.push_back(late.w());
    distance = std::max(distance, std::abs(late.w() - fresh.w()));
  }
  return distance;
}

TEST(ErrorFeedback, DelayOfOneUpdate_LeavesAnErrorOfSecondOrderInTheRate) {
  for (const double rate : {0.01, 0.05, 0.1, 0.2}) {
    EXPECT_NEAR(DistanceFromFresh(SgdConfig{}, rate, 1, true), rate * rate, 1e-5) << rate;
    // Without it the error is of first order.
    EXPECT_GT(DistanceFromFresh(SgdConfig{}, rate, 1, false), rate / 4.0) << rate;
  }
  EXPECT_LT(DistanceFromFresh(SgdConfig{0.9, 0.0}, 0.1, 1, true),
            0.4 * DistanceFromFresh(SgdConfig{0.9, 0.0}, 0.1, 1, false));
}

// With momentum, as it is meant to be used, it also widens the range of stable rates; without, the price is
// that the range shrinks to the golden ratio of what it was.
TEST(ErrorFeedback, DelayOfOneUpdate_MovesTheLimitOfStability) {
  struct Case {
    double momentum, without, with;
  };
  for (const Case& c : {Case{0.0, 1.0, 0.618}, {0.9, 0.1, 0.270}}) {
    for (const bool feeds_back : {false, true}) {
      for (const bool above : {false, true}) {
        const double rate = (feeds_back ? c.with : c.without) * (above ? 1.03 : 0.97);
        Scalar scalar(SgdConfig{c.momentum, 0.0}, {.last_update = feeds_back});
        double before = scalar.w();
        bool first = true;
        EXPECT_NE(DiesOut([&] {
                    const double read = std::exchange(before, scalar.w());
                    scalar.Step(read, rate, feeds_back && !std::exchange(first, false));
                    return scalar.w();
                  }),
                  above)
            << c.momentum << ", feeds back " << feeds_back;
      }
    }
  }
}

// On a quadratic the prediction by the last update is what the next update will be, up to second order.
TEST(Prediction, ByTheLastUpdate_IsExactForAConstantGradient) {
  Scalar scalar(SgdConfig{0.5, 0.0}, {.momentum_average = true});
  for (int t = 0; t < 40; ++t) scalar.Step(1.0, 0.125);
  const double predicted = scalar.Predicted(3);
  for (int t = 0; t < 3; ++t) scalar.Step(1.0, 0.125);
  EXPECT_NEAR(predicted, scalar.w(), 1e-5);
}

// A run that goes on from a checkpoint has the numbers of one that never stopped.
TEST(MomentumProduct, AskedOutOfTurn_IsAFunctionOfTheUpdate) {
  const NAdamWConfig config;
  MomentumProduct in_turn(config);
  double product = 1.0;
  for (int64_t t = 1; t <= 300; ++t) {
    product *= in_turn.Coefficient(t);
    if (product < 1e-30) product = 0.0;
    EXPECT_EQ(in_turn.UpTo(t), product) << t;
    EXPECT_EQ(MomentumProduct(config).UpTo(t), product) << t;
  }
  EXPECT_EQ(in_turn.UpTo(1), in_turn.Coefficient(1));
  EXPECT_EQ(in_turn.UpTo(int64_t{1} << 40), 0.0);  // and does not take for ever
}

// With momentum and gradients two updates late, predicted weights keep training stable where plain ones do
// not.
TEST(Prediction, WithMomentum_WidensTheStableRange) {
  constexpr int kDelay = 2;
  const auto stable = [](double rate, bool predicts) {
    Scalar scalar(SgdConfig{0.9, 0.0}, {.momentum_average = predicts});
    std::deque<double> read(kDelay + 1, scalar.w());
    return DiesOut([&] {
      scalar.Step(read.front(), rate);
      read.pop_front();
      read.push_back(scalar.Predicted(predicts ? kDelay : 0));
      return scalar.w();
    });
  };
  EXPECT_TRUE(stable(0.04, false));
  EXPECT_FALSE(stable(0.08, false));
  EXPECT_TRUE(stable(0.08, true));
}

}  // namespace
}  // namespace penstock
