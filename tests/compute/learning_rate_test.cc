#include "compute/learning_rate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

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

// Vaswani et al.'s d^-0.5 min(t^-0.5, t w^-1.5) with d = 512, w = 4000, whose peak is (d w)^-0.5, at a sample a step.
TEST(LearningRate, InverseSquareRoot_IsTheTransformersFormula) {
  LearningRate rate;
  rate.peak = 1.0 / std::sqrt(512.0 * 4000.0);
  rate.warmup_samples = 4000;
  rate.decay = LearningRate::Decay::kInverseSquareRoot;
  const auto formula = [](double t) {
    return std::pow(512.0, -0.5) * std::min(std::pow(t, -0.5), t * std::pow(4000.0, -1.5));
  };
  for (const int64_t t : {1, 100, 3999, 4000, 4001, 16000, 100000}) {
    EXPECT_NEAR(rate.At(t), formula(static_cast<double>(t)), 1e-18) << t;
  }
  EXPECT_DOUBLE_EQ(rate.At(16000), 0.5 * rate.peak);  // four times the warm-up: half
}

TEST(LearningRate, Wsd_IsStableUntilItFallsInALine) {
  LearningRate rate = Make(LearningRate::Decay::kWsd);
  rate.cooldown_samples = 200;
  EXPECT_DOUBLE_EQ(rate.At(50), 1.0);  // the warm-up
  for (const int64_t stable : {100, 101, 500, 899, 900}) EXPECT_EQ(rate.At(stable), 2.0) << stable;
  EXPECT_DOUBLE_EQ(rate.At(950), 2.0 - 0.25 * 1.8);
  EXPECT_DOUBLE_EQ(rate.At(1000), 0.5 * (2.0 + 0.2));
  EXPECT_DOUBLE_EQ(rate.At(1100), 0.2);
  EXPECT_DOUBLE_EQ(rate.At(5000), 0.2);
}

TEST(LearningRate, Wsd_WithoutTimeToFallStaysAtThePeak_AndFallsAfterALateWarmUp) {
  LearningRate rate = Make(LearningRate::Decay::kWsd);
  EXPECT_EQ(rate.At(1100), 2.0);
  rate.cooldown_samples = 1000;
  rate.warmup_samples = 600;  // the decay would begin at 100
  EXPECT_DOUBLE_EQ(rate.At(600), 2.0);
  EXPECT_DOUBLE_EQ(rate.At(850), 0.5 * (2.0 + 0.2));
  EXPECT_DOUBLE_EQ(rate.At(1100), 0.2);
}

// What torch.optim.lr_scheduler (PyTorch 2) has after 1, 2, ... steps of SequentialLR: LinearLR from 0 for 4 steps, then each
// of the others. The rate of our update t is that of theirs after t steps, so that the first one is not wasted.
struct TorchCourse {
  LearningRate::Decay decay;
  std::vector<double> rates;
};
TEST(LearningRate, Courses_AreThoseOfTorchSchedulers) {
  const std::vector<TorchCourse> courses = {
      // LinearLR(1.0, 0.1, total_iters=8)
      {LearningRate::Decay::kLinear,
       {0.5, 1.0, 1.5, 2.0, 1.775, 1.55, 1.325, 1.1, 0.875, 0.65, 0.425, 0.2, 0.2}},
      // CosineAnnealingLR(8, eta_min=0.2)
      {LearningRate::Decay::kCosine,
       {0.5, 1.0, 1.5, 2.0, 1.9314915792601581, 1.7363961030678927, 1.444415089128581, 1.1,
        0.7555849108714194, 0.4636038969321074, 0.268508420739842, 0.2}},
      // ConstantLR(1.0), then LinearLR(1.0, 0.1, total_iters=4) from step 8 on
      {LearningRate::Decay::kWsd,
       {0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0, 1.55, 1.1, 0.65, 0.2, 0.2}},
  };
  for (const TorchCourse& course : courses) {
    LearningRate rate = Make(course.decay);
    rate.warmup_samples = 4;
    rate.total_samples = 12;
    rate.cooldown_samples = 4;
    for (size_t t = 1; t <= course.rates.size(); ++t) {
      EXPECT_NEAR(rate.At(static_cast<int64_t>(t)), course.rates[t - 1], 1e-14)
          << static_cast<int>(course.decay) << " " << t;
    }
  }
}

// MultiStepLR([3, 5], 0.25) behind 4 steps of warm-up: its rate after t steps is the one of update t + 1.
TEST(LearningRate, Step_FallsWhereTorchMultiStepLrDoes) {
  LearningRate rate = Make(LearningRate::Decay::kStep);
  rate.warmup_samples = 4;
  rate.milestone_samples = {7, 9};
  rate.factor = 0.25;
  const std::vector<double> torch = {2.0, 2.0, 2.0, 0.5, 0.5, 0.125, 0.125};
  for (size_t i = 0; i < torch.size(); ++i) {
    EXPECT_DOUBLE_EQ(rate.At(static_cast<int64_t>(5 + i)), torch[i]) << i;
  }
}

TEST(LearningRate, AfterTheEnd_KeepsTheFinalRate) {
  EXPECT_DOUBLE_EQ(Make(LearningRate::Decay::kLinear).At(5000), 0.2);
  EXPECT_DOUBLE_EQ(Make(LearningRate::Decay::kCosine).At(5000), 0.2);
}

TEST(LearningRate, Decay_NeverRises) {
  for (const auto decay : {LearningRate::Decay::kLinear, LearningRate::Decay::kCosine,
                           LearningRate::Decay::kInverseSquareRoot, LearningRate::Decay::kWsd}) {
    LearningRate rate = Make(decay);
    rate.cooldown_samples = 300;
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
