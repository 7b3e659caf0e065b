// The loops that ops share, of every instruction set this machine has, against plain ones in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/random.h"
#include "compute/cpu/kernels/best.h"

namespace penstock {
namespace {

class CpuOpKernels : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() { return *GetParam(); }
};

std::vector<float> NormalFloats(int64_t count, double deviation, uint64_t purpose = 1) {
  RandomStream random(2, purpose);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(),
                [&] { return static_cast<float>(deviation * random.Normal()); });
  return values;
}

// Around the lanes of every instruction set.
const std::vector<int64_t> kCounts = {1, 3, 4, 7, 8, 9, 15, 16, 17, 33, 64, 100};

struct Function {
  Activation activation;
  double (*value)(double x);
  double (*slope)(double x);
  bool slope_of_output;
};

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double Normal(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double NormalDensity(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
// The logistic form of gelu's approximation and the slope of its argument.
double TanhArgument(double x) {
  return 2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}
double TanhArgumentSlope(double x) {
  return 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}

const Function kFunctions[] = {
    {Activation::kRelu, [](double x) { return std::max(x, 0.0); },
     [](double x) { return x > 0 ? 1.0 : 0.0; }, true},
    {Activation::kGeluTanh, [](double x) { return x * Sigmoid(TanhArgument(x)); },
     [](double x) {
       const double s = Sigmoid(TanhArgument(x));
       return s + x * s * Sigmoid(-TanhArgument(x)) * TanhArgumentSlope(x);
     },
     false},
    {Activation::kGeluErf, [](double x) { return x * Normal(x); },
     [](double x) { return Normal(x) + x * NormalDensity(x); }, false},
    {Activation::kSilu, [](double x) { return x * Sigmoid(x); },
     [](double x) { return Sigmoid(x) + x * Sigmoid(x) * Sigmoid(-x); }, false},
    {Activation::kTanh, [](double x) { return std::tanh(x); },
     [](double x) { return 1 / (std::cosh(x) * std::cosh(x)); }, true},
    {Activation::kSigmoid, Sigmoid, [](double x) { return Sigmoid(x) * Sigmoid(-x); }, true},
};

TEST_P(CpuOpKernels, Activations_MatchTheirFormulas) {
  std::vector<float> x;
  for (int i = -3000; i <= 3000; ++i) x.push_back(static_cast<float>(i) * 0.004f);
  const auto count = static_cast<int64_t>(x.size());
  const std::vector<float> incoming(count, 2.0f);
  for (const Function& function : kFunctions) {
    std::vector<float> y(count), gradient(count);
    kernels().activate(function.activation, count, x.data(), y.data());
    kernels().activate_gradient(function.activation, count,
                                (function.slope_of_output ? y : x).data(), incoming.data(),
                                gradient.data());
    for (int64_t i = 0; i < count; ++i) {
      const double expected = function.value(x[i]);
      ASSERT_NEAR(y[i], expected, 4e-7 * std::max(1.0, std::abs(expected)))
          << static_cast<int>(function.activation) << " of " << x[i];
      ASSERT_NEAR(gradient[i], 2.0 * function.slope(x[i]), 2e-6)
          << static_cast<int>(function.activation) << " at " << x[i];
    }
  }
}

TEST_P(CpuOpKernels, Tanh_OfSmallNumbers_KeepsTheirPrecision) {
  for (float x = 1e-6f; x < 1.0f; x *= 1.1f) {
    float y = 0.0f;
    kernels().activate(Activation::kTanh, 1, &x, &y);
    ASSERT_NEAR(y, std::tanh(static_cast<double>(x)), 3e-7 * static_cast<double>(x)) << x;
  }
}

TEST_P(CpuOpKernels, Activations_OfExtremes_StayFiniteAndKeepNotANumber) {
  const std::vector<float> x = {-1e30f, -1000.0f, -100.0f, 100.0f, 1000.0f, std::nanf("")};
  const auto count = static_cast<int64_t>(x.size());
  const std::vector<float> incoming(count, 1.0f);
  for (const Function& function : kFunctions) {
    SCOPED_TRACE(static_cast<int>(function.activation));
    std::vector<float> y(count), gradient(count);
    kernels().activate(function.activation, count, x.data(), y.data());
    kernels().activate_gradient(function.activation, count,
                                (function.slope_of_output ? y : x).data(), incoming.data(),
                                gradient.data());
    EXPECT_TRUE(std::isnan(y.back()));
    for (int64_t i = 1; i + 1 < count; ++i) {
      EXPECT_NEAR(y[i], function.value(x[i]), 1e-6 * std::abs(function.value(x[i])) + 1e-30)
          << x[i];
      EXPECT_NEAR(gradient[i], function.slope(x[i]), 1e-6) << x[i];
    }
  }
}

TEST_P(CpuOpKernels, FlatLoops_WriteTheirElementsAndNoOthers) {
  for (const int64_t count : kCounts) {
    const std::vector<float> a = NormalFloats(count, 1.0), b = NormalFloats(count, 1.0, 2);
    std::vector<float> product(count + 4, 9.0f), difference(count + 4, 9.0f);
    kernels().product(count, a.data(), b.data(), product.data());
    kernels().difference(count, 0.5f, a.data(), b.data(), difference.data());
    double distance = 0.0;
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(product[i], a[i] * b[i]);
      EXPECT_EQ(difference[i], (a[i] - b[i]) * 0.5f);
      distance += std::pow(static_cast<double>(a[i] - b[i]), 2);
    }
    EXPECT_NEAR(kernels().squared_distance(count, a.data(), b.data()), distance, 1e-9 * distance);
    for (int64_t i = count; i < count + 4; ++i) {
      EXPECT_EQ(product[i], 9.0f);
      EXPECT_EQ(difference[i], 9.0f);
    }
  }
}

TEST_P(CpuOpKernels, CrossEntropy_SpreadsAndIgnoresTargets) {
  const int64_t rows = 4;
  for (const int64_t classes : kCounts) {
    const std::vector<float> logits = NormalFloats(rows * classes, 3.0);
    const auto last = static_cast<int32_t>(classes - 1);
    const std::vector<int32_t> targets = {0, last, 0, last / 2};
    std::vector<float> log_sums(rows), gradient(rows * classes);
    const CrossEntropyRows all = {.rows = rows,
                                  .classes = classes,
                                  .logits = logits.data(),
                                  .targets = targets.data(),
                                  .log_sums = log_sums.data(),
                                  .ignored = last,
                                  .smoothing = 0.25f};
    const double loss = kernels().cross_entropy(all);
    kernels().f32.cross_entropy_gradient(all, 0.5f, gradient.data());
    double expected_loss = 0.0;
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0.0;
      for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits[r * classes + c]);
      for (int64_t c = 0; c < classes; ++c) {
        const double logit = logits[r * classes + c];
        const double share = (c == targets[r] ? 0.75 : 0.0) + 0.25 / static_cast<double>(classes);
        const bool counts = targets[r] != last;
        if (counts) expected_loss += share * (std::log(sum) - logit);
        EXPECT_NEAR(gradient[r * classes + c], counts ? 0.5 * (std::exp(logit) / sum - share) : 0.0,
                    1e-6);
      }
    }
    EXPECT_NEAR(loss, expected_loss, 1e-5 * (1.0 + expected_loss)) << classes;
  }
}

INSTANTIATE_TEST_SUITE_P(AllInstructionSets, CpuOpKernels, ::testing::ValuesIn(SupportedKernels()),
                         [](const auto& info) { return std::string(info.param->instruction_set); });

}  // namespace
}  // namespace penstock
