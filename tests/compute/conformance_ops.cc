// What holds for every op: numbers, differences, separable passes, memory.
#include "tests/compute/conformance_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kBf16};

// Of the largest number of a tensor.
double ToleranceOf(Precision precision) { return precision == Precision::kF32 ? 1e-5 : 2e-2; }
const char* NameOf(Precision precision) { return precision == Precision::kF32 ? "f32" : "bf16"; }

void ExpectNear(const std::string& what, const std::vector<float>& actual,
                const OpCase::Array& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.values.size()) << what;
  double largest = 0.0;
  for (const double value : expected.values) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected.values[i], tolerance * largest) << what << "[" << i << "]";
  }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void AddDifference(const std::string& what, const std::vector<std::vector<float>>& a,
                   const std::vector<std::vector<float>>& b, std::string& differences) {
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i >= a.size() || i >= b.size() || !SameBits(a[i], b[i])) {
      absl::StrAppend(&differences, " ", what, " ", i);
    }
  }
}

}  // namespace

std::string DifferentBits(const OpResults& a, const OpResults& b) {
  std::string differences;
  if (!SameBits(a.output, b.output)) differences = " output";
  AddDifference("gradient of input", a.grad_inputs, b.grad_inputs, differences);
  AddDifference("gradient of parameter", a.gradients, b.gradients, differences);
  AddDifference("buffer", a.buffers, b.buffers, differences);
  return differences;
}

void OpConformance::SetUp() {
  absl::StatusOr<std::unique_ptr<Backend>> made = GetParam().on.make();
  if (absl::IsUnavailable(made.status())) {
    GTEST_SKIP() << "not on this machine: " << made.status().message();
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(backend_, std::move(made));
}

namespace {

TEST_P(OpConformance, Passes_GiveTheNumbersOfPyTorch) {
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(NameOf(precision));
    OpPasses passes(backend(), op_case(), precision);
    const OpResults results = passes.Run();
    const auto expect = [&](const std::string& what, const std::vector<float>& actual) {
      const OpCase::Array* expected = op_case().Find(what);
      ASSERT_NE(expected, nullptr) << "PyTorch has no " << what;
      ExpectNear(what, actual, *expected, ToleranceOf(precision));
    };
    size_t compared = 1;
    expect("output", results.output);
    for (size_t i = 0; i < results.grad_inputs.size(); ++i) {
      if (results.grad_inputs[i].empty()) continue;
      expect(absl::StrCat("gradient of input ", i), results.grad_inputs[i]);
      ++compared;
    }
    for (size_t p = 0; p < results.gradients.size(); ++p) {
      expect(absl::StrCat("gradient of ", passes.node().parameters[p].name), results.gradients[p]);
      ++compared;
    }
    for (size_t b = 0; b < results.buffers.size(); ++b) {
      expect(absl::StrCat("buffer ", passes.node().buffers[b].name), results.buffers[b]);
      ++compared;
    }
    const std::vector<float> predictions = passes.Predictions();
    if (!predictions.empty()) {
      expect("predictions", predictions);
      ++compared;
    }
    const bool evaluates_otherwise = op_case().Find("evaluation") != nullptr;
    OpPasses::Microbatch evaluated(passes, 0, passes.Values(), {.training = false});
    evaluated.Forward();
    expect(evaluates_otherwise ? "evaluation" : "output", evaluated.results().output);
    EXPECT_EQ(compared + (evaluates_otherwise ? 1 : 0), op_case().expected.size());
  }
}

// Not in bf16: what it rounds away is more than a difference.
TEST_P(OpConformance, Gradients_MatchDifferencesInRandomDirections) {
  constexpr int kDirections = 3;
  constexpr double kStep = 0x1p-10;
  OpPasses passes(backend(), op_case(), Precision::kF32);
  const OpResults results = passes.Run();
  const OpValues middle = passes.Values();
  double rounding = 0.0;  // what the sums of outputs may be off
  const std::vector<float> grad_output = passes.GradOutput();
  for (size_t i = 0; i < results.output.size(); ++i) {
    rounding +=
        std::pow(static_cast<double>(results.output[i]) * static_cast<double>(grad_output[i]), 2);
  }
  rounding = std::sqrt(rounding) * 0x1p-22;
  for (uint32_t direction = 0; direction < kDirections; ++direction) {
    double predicted = 0.0;
    double scale = 0.0;
    OpValues ahead = middle;
    OpValues behind = middle;
    uint32_t which = 50 * direction;
    const auto move = [&](const std::vector<float>& gradient, std::vector<float>& up,
                          std::vector<float>& down) {
      const std::vector<uint32_t> hashes =
          Hashes({op_case(), NumbersFor::kDirection, which++}, static_cast<int64_t>(up.size()));
      for (size_t i = 0; i < up.size(); ++i) {
        // A multiple of 1/8, so that the step is exact.
        const double along = static_cast<double>(hashes[i] % 17) / 8.0 - 1.0;
        up[i] += static_cast<float>(along * kStep);
        down[i] -= static_cast<float>(along * kStep);
        predicted += along * static_cast<double>(gradient[i]);
        scale += std::pow(along * static_cast<double>(gradient[i]), 2);
      }
    };
    for (size_t i = 0; i < middle.inputs.size(); ++i) {
      if (!middle.inputs[i].empty())
        move(results.grad_inputs[i], ahead.inputs[i], behind.inputs[i]);
    }
    for (size_t p = 0; p < middle.parameters.size(); ++p) {
      move(results.gradients[p], ahead.parameters[p], behind.parameters[p]);
    }
    const double slope = (passes.Objective(ahead) - passes.Objective(behind)) / (2 * kStep);
    EXPECT_NEAR(predicted, slope, 1e-3 * std::sqrt(scale) + rounding / kStep);
  }
}

TEST_P(OpConformance, PassesOfTwoMicrobatches_MayInterleave) {
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(NameOf(precision));
    OpPasses passes(backend(), op_case(), precision);
    const OpResults alone = passes.Run();
    OpPasses::Microbatch first(passes, 0, passes.Values(0), {});
    OpPasses::Microbatch second(passes, 1, passes.Values(1), {});
    first.Forward();
    second.Forward();
    first.BackwardInput();
    second.BackwardInput();
    second.BackwardWeight();
    first.BackwardWeight();
    EXPECT_EQ(DifferentBits(first.results(), alone), "");
    const std::vector<float> output = second.results().output;
    EXPECT_TRUE(
        std::all_of(output.begin(), output.end(), [](float x) { return std::isfinite(x); }));
  }
}

TEST_P(OpConformance, BackwardWeight_AddsToTheGradients) {
  for (const Precision precision : kPrecisions) {
    OpPasses passes(backend(), op_case(), precision);
    const OpResults from_zero = passes.Run();
    const OpResults from_one = passes.Run({.initial_gradient = 1.0f});
    for (size_t p = 0; p < from_zero.gradients.size(); ++p) {
      for (size_t i = 0; i < from_zero.gradients[p].size(); ++i) {
        const float expected = from_zero.gradients[p][i] + 1.0f;
        ASSERT_NEAR(from_one.gradients[p][i], expected, 1e-5f * std::abs(expected) + 1e-5f)
            << passes.node().parameters[p].name << "[" << i << "] in " << NameOf(precision);
      }
    }
  }
}

TEST_P(OpConformance, Gradients_AreTheSameWithoutThoseOfInputs) {
  for (const Precision precision : kPrecisions) {
    OpPasses passes(backend(), op_case(), precision);
    OpResults all = passes.Run();
    const OpResults weights_only = passes.Run({.wants_grad_inputs = false});
    all.grad_inputs = weights_only.grad_inputs;
    EXPECT_EQ(DifferentBits(all, weights_only), "") << NameOf(precision);
  }
}

}  // namespace
}  // namespace penstock
