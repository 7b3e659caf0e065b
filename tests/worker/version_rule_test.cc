// The serial reference judges everything else by this rule, so it is held to the papers' closed forms by hand.
#include "worker/version_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace penstock {
namespace {

constexpr int64_t kStagesMax = 32;
constexpr int64_t kMicrobatches = 200;

VersionRule RuleOf(Weights weights, int64_t stages, int64_t interval) {
  const BlockDraws draws(/*seed=*/1, /*delta=*/2 * stages, static_cast<int32_t>(stages));
  return {weights, stages, interval, draws, /*replay=*/nullptr, /*first=*/0};
}

// SOSP 2019: on stage s of S, from 1, microbatch k reads what k - (S - s) updates made, and its
// backward the same.
TEST(VersionRule, PipeDream_StashesWhatTheForwardRead) {
  for (int64_t stages = 1; stages <= kStagesMax; ++stages) {
    const VersionRule rule = RuleOf(Weights::kStash, stages, 1);
    for (int64_t depth = 0; depth < stages; ++depth) {
      for (int64_t k = 0; k < kMicrobatches; ++k) {
        ASSERT_EQ(rule.Forward(k, depth), std::max<int64_t>(0, k - depth));
        ASSERT_EQ(rule.Backward(k, depth), rule.Forward(k, depth));
      }
      EXPECT_EQ(rule.VersionsMax(depth), depth + 1);
      const auto late = static_cast<double>(depth);
      EXPECT_EQ(rule.Lateness(depth, /*updates_each_microbatch=*/true),
                (StageLateness{.staleness = depth, .drift = 0, .rate_delay = late}));
    }
  }
}

// The same: the first stage's version travels with the microbatch.
TEST(VersionRule, VerticalSync_IsOneVersionOnAllStages) {
  for (int64_t stages = 1; stages <= kStagesMax; ++stages) {
    const VersionRule rule = RuleOf(Weights::kVerticalSync, stages, 1);
    for (int64_t depth = 0; depth < stages; ++depth) {
      for (int64_t k = 0; k < kMicrobatches; ++k) {
        ASSERT_EQ(rule.Forward(k, depth), std::max<int64_t>(0, k - (stages - 1)));
        ASSERT_EQ(rule.Backward(k, depth), rule.Forward(k, depth));
      }
      const StageLateness lateness = rule.Lateness(depth, /*updates_each_microbatch=*/true);
      EXPECT_EQ(lateness.staleness, stages - 1);
      EXPECT_EQ(lateness.rate_delay, static_cast<double>(stages - 1));
    }
  }
}

// arXiv 2006.09503: v(k) = max(floor((k - 1) / m) - 1, 0) for k from 1, on every stage.
TEST(VersionRule, DoubleBuffer_IsOneUpdateLateOnAllStages) {
  for (const int64_t m : {1, 2, 7, 32}) {
    const VersionRule rule = RuleOf(Weights::kDoubleBuffer, 8, m);
    for (int64_t depth = 0; depth < 8; ++depth) {
      for (int64_t k = 1; k <= kMicrobatches; ++k) {
        ASSERT_EQ(rule.Forward(k - 1, depth), std::max<int64_t>((k - 1) / m - 1, 0));
        ASSERT_EQ(rule.Backward(k - 1, depth), rule.Forward(k - 1, depth));
      }
      EXPECT_EQ(rule.VersionsMax(depth), 2);
    }
  }
}

// PACI: both read the current weights, and the drift reaches, and never passes, ceil((S - s) / a).
TEST(VersionRule, SingleVersion_DriftsByTheMicrobatchesInFlight) {
  for (int64_t stages = 1; stages <= kStagesMax; ++stages) {
    for (const int64_t a : {1, 3, 8}) {
      const VersionRule rule = RuleOf(Weights::kSingle, stages, a);
      for (int64_t depth = 0; depth < stages; ++depth) {
        int64_t drift_max = 0;
        for (int64_t k = 0; k < kMicrobatches; ++k) {
          ASSERT_EQ(rule.Backward(k, depth), k / a);
          drift_max = std::max(drift_max, rule.Backward(k, depth) - rule.Forward(k, depth));
        }
        const int64_t bound = (depth + a - 1) / a;
        EXPECT_EQ(drift_max, bound) << "stage " << stages - depth << " of " << stages;
        const double tau = (2.0 * static_cast<double>(depth) + 1.0) / static_cast<double>(a);
        EXPECT_EQ(rule.Lateness(depth, /*updates_each_microbatch=*/false),
                  (StageLateness{.staleness = bound, .drift = bound, .rate_delay = tau}));
      }
    }
  }
}

// XPipe aims at the version that the microbatch's own update replaces, SpecTrain at the first stage's update.
TEST(VersionRule, PredictedWeights_AreMovedToWhatTheyAimAt) {
  constexpr int64_t kStages = 8;
  const VersionRule own = RuleOf(Weights::kPredicted, kStages, 1);
  const VersionRule aligned = RuleOf(Weights::kSpecTrain, kStages, 1);
  for (int64_t depth = 0; depth < kStages; ++depth) {
    const int64_t stage = kStages - 1 - depth;
    for (int64_t k = kStages; k < kMicrobatches; ++k) {
      ASSERT_EQ(own.ForwardAhead(k, stage, depth), depth);
      ASSERT_EQ(own.BackwardAhead(k, stage, depth), 0);
      ASSERT_EQ(aligned.ForwardAhead(k, stage, depth), depth + stage / 2);
      ASSERT_EQ(aligned.BackwardAhead(k, stage, depth), stage / 2);
    }
  }
}

// PipeMare T2: the backward's weights are moved back to those of the forward.
TEST(VersionRule, CorrectedWeights_AreMovedBackByTheDrift) {
  const VersionRule rule = RuleOf(Weights::kCorrected, 8, 3);
  for (int64_t depth = 0; depth < 8; ++depth) {
    for (int64_t k = 0; k < kMicrobatches; ++k) {
      ASSERT_EQ(rule.ForwardAhead(k, 7 - depth, depth), 0);
      ASSERT_EQ(rule.BackwardAhead(k, 7 - depth, depth),
                rule.Forward(k, depth) - rule.Backward(k, depth));
    }
  }
}

}  // namespace
}  // namespace penstock
