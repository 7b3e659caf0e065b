// Update rules against their formulas in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/random.h"
#include "tests/compute/conformance.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int64_t kCount = 200;
// Two parameters with a gap between them; the first decays.
const std::vector<ParameterSlice> kSlices = {{0, 100, true}, {112, 77, false}};

std::vector<float> RandomFloats(uint64_t purpose, double deviation, int64_t count = kCount) {
  RandomStream random(4, purpose);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(deviation * random.Normal());
  }
  return values;
}

const std::vector<OptimizerConfig> kStatefulConfigs = {AdamWConfig{}, NAdamWConfig{}, MuonConfig{},
                                                       SgdConfig{0.9, 0.1}};

// One optimizer with its arrays on the device.
class OptimizerRun {
 public:
  OptimizerRun(BackendConformance& suite, const OptimizerConfig& config,
               std::vector<ParameterSlice> slices = kSlices, int64_t count = kCount)
      : suite_(suite),
        slices_(std::move(slices)),
        count_(count),
        optimizer_(*suite.backend().MakeOptimizer(config, slices_)) {
    weights_ = suite.ToDevice(RandomFloats(1, 1.0, count), {count});
    mirror_ = suite.Poisoned(DType::kBf16, {count});
    for (size_t slot = 0; slot < optimizer_->state_names().size(); ++slot) {
      state_.push_back(suite.ToDevice(std::vector<float>(count, 0.0f), {count}));
      arrays_.push_back(state_.back().data<float>());
    }
  }

  void Step(int64_t update, const std::vector<float>& gradients, float scale, double rate,
            const Tensor& next) {
    const Tensor device = suite_.ToDevice(gradients, {count_});
    StepArguments arguments;
    arguments.weights = weights_.data<float>();
    arguments.next_weights = next.data<float>();
    arguments.next_bf16 = mirror_.data<uint16_t>();
    arguments.gradients = device.data<float>();
    arguments.state = arrays_;
    const std::vector<float> scales(slices_.size(), scale);
    arguments.gradient_scales = scales;
    arguments.learning_rate = rate;
    arguments.update = update;
    arguments.rounding_key = rounding_key;
    EXPECT_THAT(optimizer_->Step(arguments), IsOk());
  }
  void StepInPlace(int64_t update, const std::vector<float>& gradients, float scale, double rate) {
    Step(update, gradients, scale, rate, weights_);
  }

  std::vector<float> weights() { return suite_.ToHost(weights_); }
  std::vector<float> state(int slot) { return suite_.ToHost(state_[slot]); }
  std::vector<uint16_t> mirror() {
    std::vector<uint16_t> values(count_);
    suite_.backend().CopyToHost(values.data(), mirror_.buffer.data(), count_ * 2);
    return values;
  }
  std::optional<uint64_t> rounding_key;  // of the steps to come

 private:
  BackendConformance& suite_;
  const std::vector<ParameterSlice> slices_;
  const int64_t count_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor weights_, mirror_;
  std::vector<Tensor> state_;
  std::vector<float*> arrays_;
};

bool InSlice(int64_t i) { return i < 100 || (i >= 112 && i < 189); }
bool Decays(int64_t i) { return i < 100; }

TEST_P(BackendConformance, AdamW_SeveralSteps_MatchTheFormula) {
  const AdamWConfig config{0.8, 0.9, 1e-6, 0.2};
  OptimizerRun run(*this, config);
  const std::vector<float> start = run.weights();
  std::vector<double> w(start.begin(), start.end()), m(kCount), v(kCount);
  for (int64_t t = 1; t <= 5; ++t) {
    const std::vector<float> gradients = RandomFloats(100 + t, 0.1);
    const double rate = 0.01 * static_cast<double>(t);
    run.StepInPlace(t, gradients, 0.5f, rate);
    for (int64_t i = 0; i < kCount; ++i) {
      const double g = 0.5 * gradients[i];
      m[i] = config.beta1 * m[i] + (1 - config.beta1) * g;
      v[i] = config.beta2 * v[i] + (1 - config.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(config.beta1, t));
      const double v_hat = v[i] / (1 - std::pow(config.beta2, t));
      w[i] -= rate * ((Decays(i) ? config.weight_decay * w[i] : 0.0) +
                      m_hat / (std::sqrt(v_hat) + config.epsilon));
    }
  }
  const std::vector<float> result = run.weights();
  const std::vector<float> mean = run.state(0);
  const std::vector<float> square = run.state(1);
  for (int64_t i = 0; i < kCount; ++i) {
    if (InSlice(i)) {
      EXPECT_NEAR(result[i], w[i], 2e-6) << i;
      EXPECT_NEAR(mean[i], m[i], 1e-7) << i;
      EXPECT_NEAR(square[i], v[i], 1e-8) << i;
    } else {
      EXPECT_EQ(result[i], start[i]) << i << " lies between the parameters";
      EXPECT_EQ(mean[i], 0.0f) << i;
    }
  }
}

TEST_P(BackendConformance, NAdamW_SeveralSteps_MatchTheFormula) {
  const NAdamWConfig config{0.9, 0.95, 1e-6, 0.2, 0.5};
  OptimizerRun run(*this, config);
  const std::vector<float> start = run.weights();
  std::vector<double> w(start.begin(), start.end()), m(kCount), v(kCount);
  const auto coefficient = [&](int64_t t) {
    return config.beta1 * (1 - 0.5 * std::pow(0.96, config.momentum_decay * double(t)));
  };
  double product = 1.0;
  for (int64_t t = 1; t <= 6; ++t) {
    const std::vector<float> gradients = RandomFloats(100 + t, 0.1);
    const double rate = 0.01 * static_cast<double>(t);
    run.StepInPlace(t, gradients, 0.5f, rate);
    product *= coefficient(t);
    for (int64_t i = 0; i < kCount; ++i) {
      const double g = 0.5 * gradients[i];
      m[i] = config.beta1 * m[i] + (1 - config.beta1) * g;
      v[i] = config.beta2 * v[i] + (1 - config.beta2) * g * g;
      const double look_ahead = coefficient(t + 1) * m[i] / (1 - product * coefficient(t + 1)) +
                                (1 - coefficient(t)) * g / (1 - product);
      const double v_hat = v[i] / (1 - std::pow(config.beta2, t));
      w[i] -= rate * ((Decays(i) ? config.weight_decay * w[i] : 0.0) +
                      look_ahead / (std::sqrt(v_hat) + config.epsilon));
    }
  }
  const std::vector<float> result = run.weights();
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(result[i], InSlice(i) ? w[i] : start[i], 3e-6) << i;
  }
}

// The singular values of X by the iteration's definition, on a diagonal matrix, whose products are its
// diagonal's: what every singular value becomes.
double MuonValue(double value) {
  for (int i = 0; i < kMuonIterations; ++i) {
    const double square = value * value;
    value *= kMuonA + square * (kMuonB + square * kMuonC);
  }
  return value;
}

// Matrices of both forms, apart from each other and from a vector.
const std::vector<ParameterSlice> kMatrixSlices = {
    {0, 6 * 10, true, 1, 6, 10}, {64, 11, false, 2}, {80, 12 * 5, true, 3, 12, 5}};

TEST_P(BackendConformance, Muon_OfADiagonalGradient_MovesEverySingularValueAsTheIterationSays) {
  const MuonConfig config{.momentum = 0.8, .adamw = {.weight_decay = 0.2}};
  OptimizerRun run(*this, config, kMatrixSlices, kCount);
  const std::vector<float> start = run.weights();
  std::vector<float> gradients(kCount, 0.0f);
  for (const ParameterSlice& slice : kMatrixSlices) {
    for (int64_t i = 0; i < std::min(slice.rows, slice.columns); ++i) {
      gradients[slice.offset + i * slice.columns + i] = static_cast<float>(0.5 * double(i) - 0.7);
    }
  }
  std::vector<double> w(start.begin(), start.end()), v(kCount);
  for (int64_t t = 1; t <= 3; ++t) {
    const double rate = 0.01;
    run.StepInPlace(t, gradients, 0.5f, rate);
    for (const ParameterSlice& slice : kMatrixSlices) {
      if (!slice.is_hidden_matrix()) continue;
      double norm = 0.0;
      std::vector<double> direction(slice.count);
      for (int64_t i = 0; i < slice.count; ++i) {
        const double g = 0.5 * gradients[slice.offset + i];
        double& momentum = v[slice.offset + i];
        momentum = config.momentum * momentum + g;
        direction[i] = g + config.momentum * momentum;
        norm += direction[i] * direction[i];
      }
      const double scale = 0.2 * std::sqrt(double(std::max(slice.rows, slice.columns)));
      for (int64_t i = 0; i < slice.count; ++i) {
        double& weight = w[slice.offset + i];
        weight -= rate * (0.2 * weight + scale * MuonValue(direction[i] / std::sqrt(norm)));
      }
    }
  }
  const std::vector<float> result = run.weights();
  const std::vector<float> momentum = run.state(0);
  for (const ParameterSlice& slice : kMatrixSlices) {
    for (int64_t i = slice.offset; i < slice.offset + slice.count; ++i) {
      // No gradient and no decay: AdamW leaves the vector.
      EXPECT_NEAR(result[i], slice.is_hidden_matrix() ? w[i] : start[i], 2e-5) << i;
      EXPECT_NEAR(momentum[i], v[i], 1e-6) << i;
    }
  }
  for (int64_t i = 60; i < 64; ++i) EXPECT_EQ(result[i], start[i]) << "between the parameters";
}

// X X^T is near the identity: the update of a full gradient has no long and no short direction.
TEST_P(BackendConformance, Muon_OfAFullGradient_IsNearlyOrthogonal) {
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16 ? "bf16" : "f32");
    const ParameterSlice matrix = {0, 6 * 30, false, 1, 6, 30};
    OptimizerRun run(*this, MuonConfig{.momentum = 0.0, .bf16 = bf16}, {matrix}, kCount);
    const std::vector<float> start = run.weights();
    const double rate = 0.5;
    run.StepInPlace(1, RandomFloats(21, 1.0), 1.0f, rate);
    const std::vector<float> result = run.weights();
    std::vector<double> x(matrix.count);
    for (int64_t i = 0; i < matrix.count; ++i) {
      x[i] = (double(start[i]) - result[i]) / MuonRate(matrix, rate);
    }
    for (int64_t row = 0; row < 6; ++row) {
      for (int64_t other = 0; other < 6; ++other) {
        double dot = 0.0;
        for (int64_t column = 0; column < 30; ++column) {
          dot += x[row * 30 + column] * x[other * 30 + column];
        }
        EXPECT_NEAR(dot, row == other ? 1.0 : 0.0, 0.6) << row << ", " << other;
      }
    }
  }
}

TEST_P(BackendConformance, Muon_OfOtherParameters_TakesTheStepsOfAdamW) {
  const AdamWConfig adamw{0.8, 0.9, 1e-6, 0.2};
  OptimizerRun plain(*this, adamw);
  OptimizerRun muon(*this, MuonConfig{.adamw = adamw});
  for (int64_t t = 1; t <= 3; ++t) {
    plain.StepInPlace(t, RandomFloats(400 + t, 0.1), 0.5f, 0.01);
    muon.StepInPlace(t, RandomFloats(400 + t, 0.1), 0.5f, 0.01);
  }
  EXPECT_EQ(muon.weights(), plain.weights());
}

// Parameters of more elements than a block of a GPU's launch has, and one that ends with a block.
const std::vector<ParameterSlice> kLargeSlices = {{0, 50'000, true, 1},
                                                  {50'016, 3, false, 2},
                                                  {50'032, 16'384, false, 3},
                                                  {66'416, 16'385, true, 4}};
constexpr int64_t kLargeCount = 82'816;

TEST_P(BackendConformance, Steps_OfLargeParameters_MatchTheFormulas) {
  const std::vector<float> gradients = RandomFloats(7, 0.1, kLargeCount);
  const AdamWConfig adamw{0.8, 0.9, 1e-6, 0.2};
  const SgdConfig sgd{0.9, 0.01};
  OptimizerRun with_adamw(*this, adamw, kLargeSlices, kLargeCount);
  OptimizerRun with_sgd(*this, sgd, kLargeSlices, kLargeCount);
  const std::vector<float> start = with_adamw.weights();
  with_adamw.StepInPlace(1, gradients, 0.5f, 0.01);
  with_sgd.StepInPlace(1, gradients, 0.5f, 0.01);
  const std::vector<float> after_adamw = with_adamw.weights();
  const std::vector<float> after_sgd = with_sgd.weights();
  std::vector<bool> stepped(kLargeCount, false);
  for (const ParameterSlice& slice : kLargeSlices) {
    for (int64_t i = slice.offset; i < slice.offset + slice.count; ++i) {
      stepped[i] = true;
      const double w = start[i];
      const double g = 0.5 * gradients[i];
      // The first step: both bias corrections cancel the averages.
      const double adamw_step =
          (slice.decays ? adamw.weight_decay * w : 0.0) + g / (std::abs(g) + adamw.epsilon);
      ASSERT_NEAR(after_adamw[i], w - 0.01 * adamw_step, 2e-6) << i;
      const double sgd_step = g + (slice.decays ? sgd.weight_decay * w : 0.0);
      ASSERT_NEAR(after_sgd[i], w - 0.01 * sgd_step, 1e-6) << i;
    }
  }
  for (int64_t i = 0; i < kLargeCount; ++i) {
    if (!stepped[i]) {
      ASSERT_EQ(after_adamw[i], start[i]) << i << " lies between the parameters";
      ASSERT_EQ(after_sgd[i], start[i]) << i << " lies between the parameters";
    }
  }
}

// The mirror follows compute/rounding.h whatever the back-end; the master weights do not know of it.
TEST_P(BackendConformance, Step_RoundingAtRandom_GivesTheBitsOfTheCpuAndLeavesTheWeights) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto cpu, MakeCpuBackend(1));
  const std::vector<float> gradients = RandomFloats(8, 0.1, kLargeCount);
  for (const OptimizerConfig& config : kStatefulConfigs) {
    OptimizerRun nearest(*this, config, kLargeSlices, kLargeCount);
    OptimizerRun at_random(*this, config, kLargeSlices, kLargeCount);
    at_random.rounding_key = KeyOfRounding(99);
    for (int64_t update = 1; update <= 2; ++update) {
      nearest.StepInPlace(update, gradients, 1.0f, 0.1);
      at_random.StepInPlace(update, gradients, 1.0f, 0.1);
    }
    const std::vector<float> weights = at_random.weights();
    EXPECT_EQ(nearest.weights(), weights);
    const std::vector<uint16_t> mirror = at_random.mirror();
    const std::vector<uint16_t> rounded = nearest.mirror();
    int64_t differs = 0;
    for (const ParameterSlice& slice : kLargeSlices) {
      std::vector<uint16_t> expected(slice.count);
      cpu->ConvertToBf16(expected.data(), weights.data() + slice.offset, slice.count,
                         {KeyOfRounding(99), slice.identity, /*version=*/2});
      for (int64_t i = 0; i < slice.count; ++i) {
        ASSERT_EQ(mirror[slice.offset + i], expected[i]) << slice.offset + i;
        differs += expected[i] != rounded[slice.offset + i];
      }
    }
    EXPECT_GT(differs, kLargeCount / 10);
  }
}

// Whatever the gradient's size, Adam's first step has the size of the rate.
TEST_P(BackendConformance, AdamW_FirstStep_MovesByTheRate) {
  OptimizerRun run(*this, AdamWConfig{0.9, 0.999, 0.0, 0.0});
  const std::vector<float> start = run.weights();
  const std::vector<float> gradients = RandomFloats(9, 1e-3);
  run.StepInPlace(1, gradients, 1.0f, 0.125);
  const std::vector<float> result = run.weights();
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(result[i], start[i] - std::copysign(0.125f, gradients[i]), 1e-6) << i;
  }
}

TEST_P(BackendConformance, Sgd_WithMomentum_MatchesTheFormula) {
  const SgdConfig config{0.9, 0.01};
  OptimizerRun run(*this, config);
  const std::vector<float> start = run.weights();
  std::vector<double> w(start.begin(), start.end()), velocity(kCount);
  for (int64_t t = 1; t <= 4; ++t) {
    const std::vector<float> gradients = RandomFloats(200 + t, 1.0);
    run.StepInPlace(t, gradients, 0.25f, 0.05);
    for (int64_t i = 0; i < kCount; ++i) {
      velocity[i] = config.momentum * velocity[i] + 0.25 * gradients[i] +
                    (Decays(i) ? config.weight_decay * w[i] : 0.0);
      w[i] -= 0.05 * velocity[i];
    }
  }
  const std::vector<float> result = run.weights();
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(result[i], InSlice(i) ? w[i] : start[i], 1e-6) << i;
  }
}

// By hand, in numbers that f32 holds: w = 1, g = 1, momentum 1/2, rate 1/4, no decay.
//   v1 = 1,   w1 = 1 - (1 + 1/2) / 4 = 5/8;   v2 = 3/2,   w2 = 5/8 - (1 + 3/4) / 4 = 3/16.
TEST_P(BackendConformance, Sgd_Nesterov_StepsByTheMomentumAhead) {
  OptimizerRun run(*this, SgdConfig{.momentum = 0.5, .nesterov = true});
  const std::vector<float> start = run.weights();
  const std::vector<float> ones(kCount, 1.0f);
  run.StepInPlace(1, ones, 1.0f, 0.25);
  const std::vector<float> first = run.weights();
  run.StepInPlace(2, ones, 1.0f, 0.25);
  const std::vector<float> second = run.weights();
  for (int64_t i = 0; i < kCount; ++i) {
    if (!InSlice(i)) continue;
    EXPECT_NEAR(first[i] - start[i], -3.0 / 8.0, 1e-6) << i;
    EXPECT_NEAR(second[i] - first[i], -7.0 / 16.0, 1e-6) << i;
  }
}

TEST_P(BackendConformance, Sgd_WithoutMomentum_KeepsNoState) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto optimizer,
                                backend().MakeOptimizer(SgdConfig{}, kSlices));
  EXPECT_TRUE(optimizer->state_names().empty());
  OptimizerRun run(*this, SgdConfig{});
  const std::vector<float> start = run.weights();
  const std::vector<float> gradients = RandomFloats(3, 1.0);
  run.StepInPlace(1, gradients, 2.0f, 0.5);
  const std::vector<float> result = run.weights();
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(result[i], start[i] - gradients[i], 1e-6) << i;
  }
}

TEST_P(BackendConformance, Step_OutOfPlace_GivesTheBitsOfInPlaceAndLeavesTheOldWeights) {
  for (const OptimizerConfig& config : kStatefulConfigs) {
    OptimizerRun in_place(*this, config);
    OptimizerRun out_of_place(*this, config);
    const std::vector<float> start = out_of_place.weights();
    const std::vector<float> gradients = RandomFloats(5, 1.0);
    const Tensor next = ToDevice(start, {kCount});
    in_place.StepInPlace(1, gradients, 1.0f, 0.1);
    out_of_place.Step(1, gradients, 1.0f, 0.1, next);
    EXPECT_EQ(out_of_place.weights(), start);
    EXPECT_EQ(ToHost(next), in_place.weights());
  }
}

TEST_P(BackendConformance, Step_Mirror_IsTheRoundedWeights) {
  OptimizerRun run(*this, AdamWConfig{});
  run.StepInPlace(1, RandomFloats(6, 1.0), 1.0f, 0.1);
  const std::vector<float> weights = run.weights();
  const std::vector<uint16_t> mirror = run.mirror();
  std::vector<uint16_t> expected(kCount);
  const Tensor device = ToDevice(weights, {kCount});
  const Tensor rounded = Poisoned(DType::kBf16, {kCount});
  backend().ConvertToBf16(rounded.data<uint16_t>(), device.data<float>(), kCount);
  backend().CopyToHost(expected.data(), rounded.buffer.data(), kCount * 2);
  for (int64_t i = 0; i < kCount; ++i) {
    if (InSlice(i)) {
      EXPECT_EQ(mirror[i], expected[i]) << i;
    }
  }
}

TEST_P(BackendConformance, ConvertToBf16_RoundsToNearestEvenAndKeepsSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, 1.00390637f, -2.5f,
                                     0.0f, -0.0f,       infinity,    -infinity,   3.0e38f};
  const std::vector<uint16_t> expected = {0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xC020,
                                          0x0000, 0x8000, 0x7F80, 0xFF80, 0x7F62};
  const auto count = static_cast<int64_t>(values.size());
  const Tensor device = ToDevice(values, {count});
  const Tensor rounded = Poisoned(DType::kBf16, {count});
  backend().ConvertToBf16(rounded.data<uint16_t>(), device.data<float>(), count);
  std::vector<uint16_t> result(values.size());
  backend().CopyToHost(result.data(), rounded.buffer.data(), count * 2);
  EXPECT_EQ(result, expected);
}

TEST_P(BackendConformance, ConvertToBf16_NotANumber_StaysNotANumber) {
  const Tensor device = ToDevice(std::vector<float>(40, std::nanf("")), {40});
  const Tensor rounded = ToDevice(std::vector<float>(40, 0.0f), {40});
  backend().ConvertToBf16(static_cast<uint16_t*>(rounded.buffer.data()), device.data<float>(), 40);
  std::vector<uint16_t> result(40);
  backend().CopyToHost(result.data(), rounded.buffer.data(), 80);
  for (const uint16_t bits : result) {
    EXPECT_GT(bits & 0x7FFF, 0x7F80);
  }
}

// What crosses from layer to layer in bf16 jobs: rounded in place, or narrowed and widened again.
TEST_P(BackendConformance, ConvertToBf16_AndBack_IsWhatRoundToBf16Gives) {
  const std::vector<float> values = {1.0f,  1.00390625f, 1.01171875f, 1.00390637f,
                                     -2.5f, 0.0f,        -0.0f,       3.0e38f};
  const std::vector<float> expected = {1.0f,  1.0f, 1.015625f, 1.0078125f,
                                       -2.5f, 0.0f, -0.0f,     0x1.C4p127f};
  const auto count = static_cast<int64_t>(values.size());
  const Tensor device = ToDevice(values, {count});
  const Tensor narrow = Poisoned(DType::kBf16, {count});
  const Tensor wide = Poisoned(DType::kF32, {count});
  backend().ConvertToBf16(narrow.data<uint16_t>(), device.data<float>(), count);
  backend().ConvertFromBf16(wide.data<float>(), narrow.data<uint16_t>(), count);
  backend().RoundToBf16(device.data<float>(), count);
  EXPECT_EQ(ToHost(wide), expected);
  EXPECT_EQ(ToHost(device), ToHost(wide));
}

TEST_P(BackendConformance, SliceNorms_OfManyValues_AreSummedInDouble) {
  // In float, adding 1 to 2^24 changes nothing.
  std::vector<float> values(1 << 18, 1.0f);
  values[16] = 4096.0f;
  values.back() = std::nanf("");  // behind the last slice
  const Tensor device = ToDevice(values, {static_cast<int64_t>(values.size())});
  const std::vector<ParameterSlice> slices = {
      {0, 5, true}, {16, (1 << 18) - 17, true}, {4096, 1, false}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto norms, backend().MakeSliceNorms(slices));
  std::vector<double> squared(3);
  ASSERT_THAT(norms->Measure(device.data<float>(), absl::MakeSpan(squared)), IsOk());
  EXPECT_THAT(squared, testing::ElementsAre(5.0, 4096.0 * 4096.0 + (1 << 18) - 18, 1.0));
}

// What a worker sends and receives: whole, and not changed by what the device does next.
TEST_P(BackendConformance, TensorsToTheHostAndBack_AreWhole) {
  std::vector<float> values(1000);
  for (int round = 0; round < 5; ++round) {
    std::iota(values.begin(), values.end(), static_cast<float>(round));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Outgoing outgoing,
                                  backend().StartToHost(ToDevice(values, {10, 100})));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor host, backend().FinishToHost(std::move(outgoing)));
    EXPECT_EQ(host.shape, (Shape{10, 100}));
    EXPECT_EQ(std::vector<float>(host.data<float>(), host.data<float>() + 1000), values);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor device, backend().ToDevice(host));
    EXPECT_EQ(ToHost(device), values);
  }
}

TEST_P(BackendConformance, SeveralTensors_OnTheirWayAtOnce_EachArriveWhole) {
  constexpr int kTensors = 9;
  const auto values_of = [](int t) {
    std::vector<float> values(1000 + 500 * (t % 3));
    std::iota(values.begin(), values.end(), static_cast<float>(10'000 * t));
    return values;
  };
  for (int round = 0; round < 3; ++round) {
    std::vector<Outgoing> outgoing;
    for (int t = 0; t < kTensors; ++t) {
      const std::vector<float> values = values_of(t + round);
      const Tensor tensor = ToDevice(values, {static_cast<int64_t>(values.size())});
      PENSTOCK_ASSERT_OK_AND_ASSIGN(outgoing.emplace_back(), backend().StartToHost(tensor));
    }
    std::vector<Tensor> host(kTensors);
    for (int t = kTensors; t-- > 0;) {  // the last one first
      PENSTOCK_ASSERT_OK_AND_ASSIGN(host[t], backend().FinishToHost(std::move(outgoing[t])));
    }
    std::vector<Incoming> incoming;
    for (int t = 0; t < kTensors; ++t) {
      const std::vector<float> values = values_of(t + round);
      EXPECT_EQ(std::vector<float>(host[t].data<float>(), host[t].data<float>() + values.size()),
                values);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(incoming.emplace_back(), backend().StartToDevice(host[t]));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor at_once, backend().ToDevice(host[t]));
      EXPECT_EQ(ToHost(at_once), values);
    }
    for (int t = 0; t < kTensors; ++t) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Tensor device,
                                    backend().FinishToDevice(std::move(incoming[t])));
      EXPECT_EQ(ToHost(device), values_of(t + round));
    }
  }
}

TEST_P(BackendConformance, LinearCombination_MayWriteOverEitherOfItsArguments) {
  const std::vector<float> x = RandomFloats(11, 1.0);
  const std::vector<float> y = RandomFloats(12, 1.0);
  for (const int target : {0, 1, 2}) {
    const Tensor arrays[] = {ToDevice(x, {kCount}), ToDevice(y, {kCount}),
                             ToDevice(std::vector<float>(kCount, 0.0f), {kCount})};
    backend().LinearCombination(arrays[target].data<float>(), 0.75f, arrays[0].data<float>(), -2.0f,
                                arrays[1].data<float>(), kCount - 1);
    const std::vector<float> result = ToHost(arrays[target]);
    for (int64_t i = 0; i < kCount - 1; ++i) {
      EXPECT_NEAR(result[i], 0.75 * x[i] - 2.0 * y[i], 1e-6) << i;
    }
    EXPECT_EQ(result.back(), (target == 0 ? x : target == 1 ? y : std::vector<float>{0.0f}).back());
  }
}

TEST_P(BackendConformance, CompensateDelay_MatchesTheFormula) {
  const std::vector<float> g = RandomFloats(13, 1.0);
  const std::vector<float> now = RandomFloats(14, 1.0);
  const std::vector<float> read = RandomFloats(15, 1.0);
  const Tensor gradient = ToDevice(g, {kCount});
  backend().CompensateDelay(gradient.data<float>(), 0.25f, ToDevice(now, {kCount}).data<float>(),
                            ToDevice(read, {kCount}).data<float>(), kCount);
  const std::vector<float> result = ToHost(gradient);
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(result[i], g[i] + 0.25 * g[i] * g[i] * (now[i] - read[i]), 1e-5) << i;
  }
}

// Two updates of five weights with m = 3/4 and the strength 2, by hand. v = 3/4 v + 1/4 g^2, c = 2 / sqrt(v + 1e-7):
//   g    2,    4,   0,    1e-3,        1e30    v  1, 4, 0, 2.5e-7, infinite
//   moved 0.5, -1, 8, 1e6, 0.5
//   g'   2 + 2 * 4 * 0.5 = 6,  4 - 1 * 16 = -12,  0,
//        1e-3 + 2 / sqrt(3.5e-7) * 1e-6 * 1e6 = 3380.618,  1e30 as it was
//   g    3,    -2,  1,    0            v  3/4 + 9/4 = 3, 3 + 1 = 4, 1/4, 1.875e-7
//   moved -1,  0.5, 0,    5
//   g'   3 - 2 / sqrt(3) * 9 = -7.392305,  -2 + 1 * 4 * 0.5 = 0,  1,  0
TEST_P(BackendConformance, CompensateDelayByMeanSquare_MatchesNumbersWorkedOutByHand) {
  const MeanSquareCompensation compensation = {.keep = 0.75f, .take = 0.25f, .strength = 2.0f};
  const Tensor mean_squares = ToDevice(std::vector<float>(5, 0.0f), {5});
  const std::vector<float> read = {1, 2, 3, 0, 5};
  const auto compensated = [&](const std::vector<float>& g, const std::vector<float>& now) {
    const Tensor gradient = ToDevice(g, {5});
    backend().CompensateDelay(gradient.data<float>(), mean_squares.data<float>(), compensation,
                              ToDevice(now, {5}).data<float>(), ToDevice(read, {5}).data<float>(),
                              5);
    return ToHost(gradient);
  };
  const auto expect_near = [](const std::vector<float>& actual,
                              const std::vector<double>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 2e-6 * std::max(1.0, std::abs(expected[i]))) << i;
    }
  };
  expect_near(compensated({2, 4, 0, 1e-3f, 1e30f}, {1.5f, 1, 11, 1e6f, 5.5f}),
              {6, -12, 0, 3380.618, 1e30});
  expect_near(ToHost(mean_squares), {1, 4, 0, 2.5e-7});
  EXPECT_EQ(ToHost(mean_squares)[4], std::numeric_limits<float>::infinity());
  expect_near(compensated({3, -2, 1, 0, 0}, {0, 2.5f, 3, 5, 5}), {-7.392305, 0, 1, 0});
  expect_near(ToHost(mean_squares), {3, 4, 0.25, 1.875e-7});
}

TEST_P(BackendConformance, CompensateDelayByMeanSquare_MatchesTheFormulaToTheEndOfTheArray) {
  const std::vector<float> g = RandomFloats(16, 1.0);
  const std::vector<float> now = RandomFloats(17, 1.0);
  const std::vector<float> read = RandomFloats(18, 1.0);
  const Tensor gradient = ToDevice(g, {kCount});
  const Tensor mean_squares = ToDevice(std::vector<float>(kCount, 0.5f), {kCount});
  backend().CompensateDelay(gradient.data<float>(), mean_squares.data<float>(),
                            {.keep = 0.875f, .take = 0.125f, .strength = 0.25f},
                            ToDevice(now, {kCount}).data<float>(),
                            ToDevice(read, {kCount}).data<float>(), kCount - 1);
  const std::vector<float> result = ToHost(gradient);
  for (int64_t i = 0; i < kCount - 1; ++i) {
    const double v = 0.4375 + 0.125 * g[i] * g[i];
    EXPECT_NEAR(ToHost(mean_squares)[i], v, 1e-6) << i;
    EXPECT_NEAR(result[i], g[i] + 0.25 / std::sqrt(v + 1e-7) * g[i] * g[i] * (now[i] - read[i]),
                1e-5)
        << i;
  }
  EXPECT_EQ(result.back(), g.back());
  EXPECT_EQ(ToHost(mean_squares).back(), 0.5f);
}

TEST_P(BackendConformance, AddInto_AddsElementByElement) {
  const Tensor a = ToDevice(std::vector<float>(37, 1.5f), {37});
  const Tensor b = ToDevice(std::vector<float>(37, 2.25f), {37});
  backend().AddInto(a.data<float>(), b.data<float>(), 36);
  std::vector<float> expected(37, 3.75f);
  expected.back() = 1.5f;
  EXPECT_EQ(ToHost(a), expected);
}

TEST_P(BackendConformance, Scale_MultipliesElementByElement) {
  const Tensor a = ToDevice(std::vector<float>(37, 1.5f), {37});
  backend().Scale(a.data<float>(), 0.25f, 36);
  std::vector<float> expected(37, 0.375f);
  expected.back() = 1.5f;
  EXPECT_EQ(ToHost(a), expected);
}

}  // namespace
}  // namespace penstock
