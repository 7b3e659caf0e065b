#include "compute/initial_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/families/gpt.h"
#include "model/pytorch_init.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::Each;

ParameterSpec Normal(std::string name, int64_t size, double deviation) {
  return {std::move(name), {size}, ParameterSpec::Init::kNormal, deviation, true};
}

TEST(InitialWeights, Normal_HasItsMeanDeviationAndTails) {
  const std::vector<float> values = InitialWeights(Normal("w", 100001, 0.02), 1);
  ASSERT_EQ(values.size(), 100001u);
  double sum = 0.0, squares = 0.0;
  int beyond_two = 0;
  for (const float value : values) {
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += static_cast<double>(value) * value;
    beyond_two += std::abs(value) > 0.04f ? 1 : 0;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 5 * 0.02 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), 0.02, 0.02 * 5 / std::sqrt(2 * count));
  EXPECT_NEAR(beyond_two / count, 0.0455, 0.004);  // of a normal distribution
}

TEST(InitialWeights, SameSeedAndName_AreTheSameNumbers) {
  EXPECT_EQ(InitialWeights(Normal("w", 50, 1.0), 1), InitialWeights(Normal("w", 50, 1.0), 1));
}

TEST(InitialWeights, OtherSeedOrName_AreOtherNumbers) {
  const std::vector<float> values = InitialWeights(Normal("w", 50, 1.0), 1);
  EXPECT_NE(InitialWeights(Normal("w", 50, 1.0), 2), values);
  EXPECT_NE(InitialWeights(Normal("v", 50, 1.0), 1), values);
}

// An element's number depends on its place alone, not on how many there are.
TEST(InitialWeights, LargerParameter_BeginsWithTheSameNumbers) {
  const std::vector<float> few = InitialWeights(Normal("w", 9, 1.0), 1);
  const std::vector<float> many = InitialWeights(Normal("w", 90, 1.0), 1);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

TEST(InitialWeights, Uniform_FillsItsRangeEvenly) {
  ParameterSpec parameter = Normal("w", 100000, 0.25);
  parameter.init = ParameterSpec::Init::kUniform;
  const std::vector<float> values = InitialWeights(parameter, 1);
  ASSERT_EQ(values.size(), 100000u);
  std::vector<int> counts(10);
  for (const float value : values) {
    ASSERT_LT(std::abs(value), 0.25f);
    ++counts[static_cast<int>((value + 0.25f) * 20.0f)];
  }
  // Of 10,000 each; the deviation of a count is 95.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * 95);
}

// As drawn: the mean is 0 within five deviations of a mean, and so is the variance, which is bound²/3 of uniform numbers.
TEST(InitialWeights, AsPyTorch_HaveTheBoundsAndMoments) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(ModelGraph model, BuildGpt({.layers = 1,
                                                            .width = 64,
                                                            .heads = 2,
                                                            .context = 64,
                                                            .vocabulary = 100,
                                                            .tied_head = false}));
  InitialiseAsPyTorch(model);
  for (const LayerSpec& layer : model.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      SCOPED_TRACE(parameter.name);
      const bool is_uniform = parameter.init == ParameterSpec::Init::kUniform;
      if (!is_uniform && parameter.init != ParameterSpec::Init::kNormal) continue;
      const double scale = parameter.init_scale;
      const double variance = is_uniform ? scale * scale / 3.0 : scale * scale;
      // The fourth moment less the squared second: 1/5 - 1/9 of the bound, 2 of the deviation, both to the fourth power.
      const double spread = scale * scale * std::sqrt(is_uniform ? 4.0 / 45.0 : 2.0);
      double sum = 0.0, squares = 0.0;
      const std::vector<float> values = InitialWeights(parameter, 7);
      for (const float value : values) {
        ASSERT_TRUE(!is_uniform || std::abs(value) <= static_cast<float>(scale));
        sum += value;
        squares += static_cast<double>(value) * value;
      }
      const auto count = static_cast<double>(values.size());
      EXPECT_NEAR(sum / count, 0.0, 5.0 * std::sqrt(variance / count));
      EXPECT_NEAR(squares / count, variance, 5.0 * spread / std::sqrt(count));
    }
  }
}

TEST(InitialWeights, ConstantParameters_AreConstant) {
  EXPECT_THAT(InitialWeights({"b", {3, 4}, ParameterSpec::Init::kZeros}, 1), Each(0.0f));
  EXPECT_THAT(InitialWeights({"g", {3, 4}, ParameterSpec::Init::kOnes}, 1), Each(1.0f));
  EXPECT_THAT(InitialWeights({"s", {3, 4}, ParameterSpec::Init::kConstant, 0.25}, 1), Each(0.25f));
}

}  // namespace
}  // namespace penstock
