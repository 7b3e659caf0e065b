#include "compute/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace penstock {
namespace {

LearningRate Make(LearningRate::Decay decay) {
  LearningRate rate;
  rate.peak = 2.0;
  rate.warmup_samples = 100;
  rate.total_samples = 1100;
  rate.decay = decay;
  rate.final_fraction = 0.1;
  return rate;
}

TEST(LearningRate, WarmUp_IsLinearFromZero) {
  for (const auto decay : {LearningRate::Decay::kConstant, LearningRate::Decay::kLinear,
                           LearningRate::Decay::kCosine}) {
    const LearningRate rate = Make(decay);
    EXPECT_DOUBLE_EQ(rate.At(0), 0.0);
    EXPECT_DOUBLE_EQ(rate.At(1), 0.02);
    EXPECT_DOUBLE_EQ(rate.At(50), 1.0);
    EXPECT_DOUBLE_EQ(rate.At(100), 2.0);
  }
}

TEST(LearningRate, NoWarmUp_StartsAtThePeak) {
  LearningRate rate = Make(LearningRate::Decay::kCosine);
  rate.warmup_samples = 0;
  EXPECT_DOUBLE_EQ(rate.At(0), 2.0);
}

TEST(LearningRate, Constant_StaysAtThePeak) {
  const LearningRate rate = Make(LearningRate::Decay::kConstant);
  EXPECT_DOUBLE_EQ(rate.At(700), 2.0);
  EXPECT_DOUBLE_EQ(rate.At(999999), 2.0);
}

TEST(LearningRate, Linear_FallsInAStraightLineToTheFinalFraction) {
  const LearningRate rate = Make(LearningRate::Decay::kLinear);
  EXPECT_DOUBLE_EQ(rate.At(600), 0.5 * (2.0 + 0.2));
  EXPECT_DOUBLE_EQ(rate.At(350), 2.0 - 0.25 * 1.8);
  EXPECT_DOUBLE_EQ(rate.At(1100), 0.2);
}

TEST(LearningRate, Cosine_FallsByHalfACosineToTheFinalFraction) {
  const LearningRate rate = Make(LearningRate::Decay::kCosine);
  EXPECT_DOUBLE_EQ(rate.At(600), 0.5 * (2.0 + 0.2));
  EXPECT_DOUBLE_EQ(rate.At(350), 0.2 + 1.8 * 0.5 * (1 + std::cos(std::numbers::pi / 4)));
  EXPECT_DOUBLE_EQ(rate.At(1100), 0.2);
}

// Steps of 10 samples: the first 30 of them have the full rate.
TEST(LearningRate, Step_FallsAfterEachMilestone) {
  LearningRate rate = Make(LearningRate::Decay::kStep);
  rate.milestone_samples = {300, 500};
  rate.factor = 0.25;
  EXPECT_DOUBLE_EQ(rate.At(50), 1.0);  // the warm-up
  EXPECT_DOUBLE_EQ(rate.At(300), 2.0);
  EXPECT_DOUBLE_EQ(rate.At(301), 0.5);
  EXPECT_DOUBLE_EQ(rate.At(310), 0.5);
  EXPECT_DOUBLE_EQ(rate.At(500), 0.5);
  EXPECT_DOUBLE_EQ(rate.At(510), 0.125);
  EXPECT_DOUBLE_EQ(rate.At(999999), 0.125);
}

TEST(LearningRate, AfterTheEnd_KeepsTheFinalRate) {
  EXPECT_DOUBLE_EQ(Make(LearningRate::Decay::kLinear).At(5000), 0.2);
  EXPECT_DOUBLE_EQ(Make(LearningRate::Decay::kCosine).At(5000), 0.2);
}

TEST(LearningRate, Decay_NeverRises) {
  for (const auto decay : {LearningRate::Decay::kLinear, LearningRate::Decay::kCosine}) {
    const LearningRate rate = Make(decay);
    for (int64_t samples = 101; samples <= 1200; ++samples) {
      EXPECT_LE(rate.At(samples), rate.At(samples - 1)) << samples;
    }
  }
}

// All samples are warm-up: the rate reaches the peak and nothing is divided by zero.
TEST(LearningRate, WarmUpAsLongAsTheRun_EndsAtThePeak) {
  LearningRate rate = Make(LearningRate::Decay::kCosine);
  rate.total_samples = 100;
  EXPECT_DOUBLE_EQ(rate.At(100), 2.0);
}

}  // namespace
}  // namespace penstock
