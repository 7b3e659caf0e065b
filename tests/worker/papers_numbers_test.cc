// What the rules for late gradients do to a stage, held to numbers worked out by hand from the papers' formulas.
//
// Executor and reference share these rules, so their agreement says nothing about them. Each test trains one update
// on four stages of a small network and reads the checkpoint. The gradient of a first update does not depend on
// the rules: all its passes read the initial weights. So what a rule does shows as a factor, which the
// comments derive.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "job/defaults.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

constexpr int kStages = 4;

class PapersNumbers : public ::testing::Test {
 protected:
  // The arrays of a stage, by name: weights as they are called, state as "<parameter>.<state>".
  using Arrays = std::map<std::string, std::vector<float>>;

  PapersNumbers() { AddTestText(files_); }

  // One step of `microbatches`, and so one update, by plain descent at the rate 1.
  static v1::JobSpec OneUpdate(const std::string& method, int64_t microbatches) {
    v1::JobSpec spec = SmallJob(method);
    v1::TrainingSpec& training = *spec.mutable_training();
    training.set_steps(1);
    training.set_batch(2 * microbatches);
    training.set_microbatches(microbatches);
    v1::SgdSpec& sgd = *training.mutable_optimizer()->mutable_sgd();
    sgd.set_learning_rate(1.0);
    sgd.set_momentum(0.0);
    sgd.set_weight_decay(0.0);
    training.mutable_learning_rate()->set_warmup_steps(0);
    training.mutable_learning_rate()->set_decay("constant");
    training.mutable_staleness()->set_rescheduled_steps(0);
    spec.mutable_checkpoint()->set_every_steps(1);
    spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
    return spec;
  }

  // By stage, after the update. The serial reference must come to the same weights.
  std::vector<Arrays> Train(const v1::JobSpec& spec) {
    const std::vector<LayerRange> layers = SplitInto({2, 2, 2, 1});
    TestCluster cluster({.spec = spec, .layers = layers}, files_);
    EXPECT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
    EXPECT_EQ(TrainSerially(spec, layers, {}, files_)->weights_sha256, cluster.WeightsSha256());
    const std::string directory = cluster.CommitCheckpoint(1).value();
    const Manifest manifest = VerifyCheckpoint(files_, directory).value();
    std::vector<Arrays> stages(kStages);
    for (int s = 0; s < kStages; ++s) {
      for (int layer = layers[s].first; layer < layers[s].end(); ++layer) {
        const LayerState state = LoadLayer(files_, directory, manifest, layer).value();
        for (const NamedArray& array : state.weights) stages[s][array.name] = array.values;
        for (const NamedArray& array : state.optimizer_state) stages[s][array.name] = array.values;
      }
    }
    EXPECT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
    return stages;
  }

  // The initial weights: a rate that changes none.
  std::vector<Arrays> Untrained(v1::JobSpec spec) {
    spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(1e-30);
    return Train(spec);
  }

  MemoryFiles files_;
};

// The factor between two directions: sum(a b) / sum(b b), over the arrays of `b`, whose names in `a` have the
// suffix. `base` is what both are counted from, where it has the array.
double Factor(const std::map<std::string, std::vector<float>>& a, const std::string& suffix,
              const std::map<std::string, std::vector<float>>& b,
              const std::map<std::string, std::vector<float>>& base) {
  double ab = 0.0;
  double bb = 0.0;
  for (const auto& [name, start] : base) {
    const std::vector<float>& x = a.at(name + suffix);
    const std::vector<float>& y = b.at(name);
    for (size_t i = 0; i < start.size(); ++i) {
      const double by = double{y[i]} - double{start[i]};
      ab += (double{x[i]} - (suffix.empty() ? double{start[i]} : 0.0)) * by;
      bb += by * by;
    }
  }
  EXPECT_GT(bb, 0.0);
  return ab / bb;
}

constexpr double kRounding = 2e-5;  // of sums of single-precision differences

// Yang et al.: stage i of P = 4, from 1, has tau = (2 (P - i) + 1) / N, which for N = 2 microbatches in an
// update is 7/2, 5/2, 3/2, 1/2. The first of K = 2 steps has p = 1 - 1/2, so that the rate is divided by
// max(1, tau)^(1/2):
//   sqrt(2/7) = 0.534522, sqrt(2/5) = 0.632456, sqrt(2/3) = 0.816497, 1.
TEST_F(PapersNumbers, PipeMareT1_DividesTheRateByThePowerOfAFractionalDelay) {
  v1::JobSpec spec = OneUpdate("paci", 2);
  const std::vector<Arrays> start = Untrained(spec);
  const std::vector<Arrays> plain = Train(spec);
  spec.mutable_training()->mutable_staleness()->set_rescheduled_steps(2);
  const std::vector<Arrays> rescheduled = Train(spec);
  const double expected[kStages] = {0.534522, 0.632456, 0.816497, 1.0};
  for (int s = 0; s < kStages; ++s) {
    EXPECT_NEAR(Factor(rescheduled[s], "", plain[s], start[s]), expected[s], kRounding)
        << "stage " << s;
  }
  EXPECT_EQ(rescheduled.back(), plain.back()) << "not a bit where tau < 1";
}

// With N = 7 = 2 P - 1 tau is 1, 5/7, 3/7 and 1/7: not a bit changes.
TEST_F(PapersNumbers, PipeMareT1_WithoutADelayAboveOne_ChangesNoBit) {
  v1::JobSpec spec = OneUpdate("paci", 7);
  const std::vector<Arrays> plain = Train(spec);
  spec.mutable_training()->mutable_staleness()->set_rescheduled_steps(2);
  EXPECT_EQ(Train(spec), plain);
}

// Ajanthan et al., without stashing: with an update for each microbatch the delay of stage i is P - i updates, 3, 2,
// 1, 0. With p = 1/2 the rate is divided by its root: 1/sqrt(3) = 0.577350, 1/sqrt(2) = 0.707107, 1, 1.
TEST_F(PapersNumbers, NesterovRates_DivideByThePowerOfWholeUpdates) {
  v1::JobSpec spec = OneUpdate("pipedream", 1);
  const std::vector<Arrays> start = Untrained(spec);
  const std::vector<Arrays> plain = Train(spec);
  spec.mutable_training()->mutable_staleness()->set_rescheduled_steps(2);
  const std::vector<Arrays> rescheduled = Train(spec);
  const double expected[kStages] = {0.577350, 0.707107, 1.0, 1.0};
  for (int s = 0; s < kStages; ++s) {
    EXPECT_NEAR(Factor(rescheduled[s], "", plain[s], start[s]), expected[s], kRounding)
        << "stage " << s;
  }
}

// T2: after an update delta = g 0 + (1 - g) (w1 - w0) with g = D^(1 / drift). With an update for each microbatch
// there are 3, 2, 1 and 0 updates between forward and backward of the four stages, the last of which keeps
// what one would. For D = 1/64 g is 1/4, 1/8, 1/64, 1/64, so that delta is the change times
//   3/4, 7/8, 63/64, 63/64.
TEST_F(PapersNumbers, PipeMareT2_AveragesWithTheRootOfDOfTheDrift) {
  v1::JobSpec spec = OneUpdate("paci", 1);
  spec.mutable_pipeline()->set_weights("corrected");
  spec.mutable_training()->mutable_staleness()->set_momentum_average_decay(1.0 / 64.0);
  const std::vector<Arrays> trained = Train(spec);
  const std::vector<Arrays> start = Untrained(OneUpdate("paci", 1));
  const double expected[kStages] = {0.75, 0.875, 0.984375, 0.984375};
  for (int s = 0; s < kStages; ++s) {
    EXPECT_NEAR(Factor(trained[s], ".motion", trained[s], start[s]), expected[s], kRounding)
        << "stage " << s;
  }
}

// Zheng et al. The second update of the first three of four stages has a gradient g2 that was taken at the initial weights
// w0, as the first one's g1, and is made good for the way to w1 = w0 - g1 at the rate 1:
//   w2 = w1 - (g2 + c g2^2 (w1 - w0)),
// where c is the strength, or in the adaptive form strength / sqrt(v + 1e-7) with v = m (1 - m) g1^2 + (1 - m) g2^2. What
// a run without compensation does gives g1 and g2. The last stage is late only with vertical sync, where it reads what the
// first one reads.
class DelayCompensation : public PapersNumbers {
 protected:
  // `spec` has a strength; the first `late` stages are late. Compares by how much w2 differs for it, and the mean squares
  // that are kept.
  void ExpectCompensated(const v1::JobSpec& spec, int late,
                         std::optional<double> mean_square_decay) {
    v1::JobSpec plain = spec;
    plain.mutable_training()->clear_staleness();
    FillDefaults(plain);
    const double strength = spec.training().staleness().delay_compensation();
    const double m = mean_square_decay.value_or(0.0);
    v1::JobSpec first = plain;  // its first update alone
    first.mutable_training()->set_batch(plain.training().batch() / 2);
    first.mutable_training()->set_microbatches(1);
    const std::vector<Arrays> w0 = Untrained(first);
    const std::vector<Arrays> w1 = Train(first);
    const std::vector<Arrays> w2 = Train(plain);
    const std::vector<Arrays> compensated = Train(spec);
    for (int s = 0; s < kStages; ++s) {
      SCOPED_TRACE(testing::Message() << "stage " << s);
      Sums changes;
      Sums squares;
      for (const auto& [name, start] : w0[s]) {
        for (size_t i = 0; i < start.size(); ++i) {
          const double moved = double{w1[s].at(name)[i]} - double{start[i]};
          const double g2 = double{w1[s].at(name)[i]} - double{w2[s].at(name)[i]};
          const double v = m * (1.0 - m) * moved * moved + (1.0 - m) * g2 * g2;
          const double c =
              mean_square_decay.has_value() ? strength / std::sqrt(v + 1e-7) : strength;
          changes.Add(double{compensated[s].at(name)[i]} - double{w2[s].at(name)[i]},
                      -c * g2 * g2 * moved);
          if (!mean_square_decay.has_value()) continue;
          squares.Add(compensated[s].at(name + ".mean_square")[i], v);
        }
      }
      if (s < late) {
        changes.ExpectEqual();
      } else {
        EXPECT_EQ(changes.actual, 0.0);
      }
      if (mean_square_decay.has_value()) squares.ExpectEqual();
    }
  }

 private:
  // Numbers against those expected, over arrays.
  struct Sums {
    double actual = 0.0;    // of squares
    double expected = 0.0;  // of squares
    double error = 0.0;     // of squares of differences

    void Add(double is, double should_be) {
      actual += is * is;
      expected += should_be * should_be;
      error += (is - should_be) * (is - should_be);
    }
    void ExpectEqual() const {
      EXPECT_GT(expected, 0.0);
      EXPECT_LT(std::sqrt(error / expected), 1e-3);
    }
  };
};

TEST_F(DelayCompensation, Constant_IsTheStrengthTimesTheSquareOfTheGradient) {
  v1::JobSpec spec = OneUpdate("pipedream", 2);
  spec.mutable_training()->mutable_staleness()->set_delay_compensation(1000.0);
  ExpectCompensated(spec, /*late=*/3, std::nullopt);
}

TEST_F(DelayCompensation, Adaptive_IsDividedByTheRootOfTheMeanSquare) {
  for (const auto& [method, late] : {std::pair("pipedream", 3), std::pair("vertical-sync", 4)}) {
    for (const double decay : {0.0, 0.5, 0.95}) {
      SCOPED_TRACE(testing::Message() << method << ", m = " << decay);
      v1::JobSpec spec = OneUpdate(method, 2);
      v1::StalenessSpec& staleness = *spec.mutable_training()->mutable_staleness();
      staleness.set_delay_compensation(8.0);
      staleness.set_adaptive_compensation(true);
      staleness.set_mean_square_decay(decay);
      ExpectCompensated(spec, late, decay);
    }
  }
}

// Stage momentum m + d (0.99 - m) / P, d = 3, 2, 1, 0 updates late on P = 4 stages: for m = 1/2 it is
//   0.5 + 3 * 0.1225 = 0.8675, 0.745, 0.6225, 0.5.
// Adam's mean after its first update is (1 - momentum) g. Against beta1 = 0.9, whose mean is 0.1 g, it is
//   1.325, 2.55, 3.775, 5 times as large.
TEST_F(PapersNumbers, StageMomentum_RisesFromTheLastStageToTheFirst) {
  v1::JobSpec spec = OneUpdate("pipedream", 1);
  v1::AdamWSpec& adamw = *spec.mutable_training()->mutable_optimizer()->mutable_adamw();
  adamw.set_learning_rate(0.01);
  adamw.set_beta1(0.9);
  adamw.set_beta2(0.95);
  adamw.set_epsilon(1e-8);
  adamw.set_weight_decay(0.0);
  const auto means = [](std::vector<Arrays> stages) {
    for (Arrays& arrays : stages) {
      std::erase_if(arrays, [](const auto& array) { return !array.first.ends_with(".exp_avg"); });
    }
    return stages;
  };
  const std::vector<Arrays> plain = means(Train(spec));
  spec.mutable_training()->mutable_staleness()->set_stage_momentum(0.5);
  const std::vector<Arrays> by_stage = means(Train(spec));
  const double expected[kStages] = {1.325, 2.55, 3.775, 5.0};
  for (int s = 0; s < kStages; ++s) {
    Arrays zeros = plain[s];
    for (auto& [name, values] : zeros) std::fill(values.begin(), values.end(), 0.0f);
    EXPECT_NEAR(Factor(by_stage[s], "", plain[s], zeros), expected[s], kRounding) << "stage " << s;
  }
}

}  // namespace
}  // namespace penstock
