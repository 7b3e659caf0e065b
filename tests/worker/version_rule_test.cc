// The serial reference judges everything else by this rule, so it is held to the papers' closed forms by hand.
#include "worker/version_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace penstock {
namespace {

constexpr int64_t kStagesMax = 32;
constexpr int64_t kMicrobatches = 200;

// With an update for each microbatch, or for the `interval` of a step.
VersionRule RuleOf(absl::string_view weights, int64_t stages, int64_t interval = 0) {
  return VersionRule({.weights = weights,
                      .stages = stages,
                      .interval = std::max<int64_t>(interval, 1),
                      .updates_each_microbatch = interval == 0});
}

// SOSP 2019: on stage s of S, from 1, microbatch k reads what k - (S - s) updates made, and its
// backward the same.
TEST(VersionRule, PipeDream_StashesWhatTheForwardRead) {
  for (int64_t stages = 1; stages <= kStagesMax; ++stages) {
    const VersionRule rule = RuleOf("stash", stages);
    for (int64_t depth = 0; depth < stages; ++depth) {
      for (int64_t k = 0; k < kMicrobatches; ++k) {
        ASSERT_EQ(rule.Forward(k, depth), std::max<int64_t>(0, k - depth));
        ASSERT_EQ(rule.Backward(k, depth), rule.Forward(k, depth));
      }
      EXPECT_EQ(rule.VersionsMax(depth), depth + 1);
      const auto late = static_cast<double>(depth);
      EXPECT_EQ(rule.Lateness(depth),
                (StageLateness{.staleness = depth, .drift = 0, .rate_delay = late}));
    }
  }
}

// The same: the first stage's version travels with the microbatch.
TEST(VersionRule, VerticalSync_IsOneVersionOnAllStages) {
  for (int64_t stages = 1; stages <= kStagesMax; ++stages) {
    const VersionRule rule = RuleOf("vertical-sync", stages);
    for (int64_t depth = 0; depth < stages; ++depth) {
      for (int64_t k = 0; k < kMicrobatches; ++k) {
        ASSERT_EQ(rule.Forward(k, depth), std::max<int64_t>(0, k - (stages - 1)));
        ASSERT_EQ(rule.Backward(k, depth), rule.Forward(k, depth));
      }
      const StageLateness lateness = rule.Lateness(depth);
      EXPECT_EQ(lateness.staleness, stages - 1);
      EXPECT_EQ(lateness.rate_delay, static_cast<double>(stages - 1));
    }
  }
}

// arXiv 2006.09503: v(k) = max(floor((k - 1) / m) - 1, 0) for k from 1, on every stage.
TEST(VersionRule, DoubleBuffer_IsOneUpdateLateOnAllStages) {
  for (const int64_t m : {1, 2, 7, 32}) {
    const VersionRule rule = RuleOf("double-buffer", 8, m);
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
      const VersionRule rule = RuleOf("single", stages, a);
      for (int64_t depth = 0; depth < stages; ++depth) {
        int64_t drift_max = 0;
        for (int64_t k = 0; k < kMicrobatches; ++k) {
          ASSERT_EQ(rule.Backward(k, depth), k / a);
          drift_max = std::max(drift_max, rule.Backward(k, depth) - rule.Forward(k, depth));
        }
        const int64_t bound = (depth + a - 1) / a;
        EXPECT_EQ(drift_max, bound) << "stage " << stages - depth << " of " << stages;
        const double tau = (2.0 * static_cast<double>(depth) + 1.0) / static_cast<double>(a);
        EXPECT_EQ(rule.Lateness(depth),
                  (StageLateness{.staleness = bound, .drift = bound, .rate_delay = tau}));
      }
    }
  }
}

// Without replicas the stages behind. A stage before three replicas must be 5 ahead: their next round begins when 3
// inputs are there, so the first of them has waited for 2, and its gradient comes with the round's end, 3 later. With 2
// before 3 the rounds of a microbatch are up to 2 apart one way and 1 the other: 2 + 3 + 1 = 6.
TEST(MicrobatchesInFlight, FollowFromTheTimetableOfRounds) {
  EXPECT_EQ(MicrobatchesInFlight({1, 1, 1, 1}), (std::vector<int64_t>{3, 2, 1, 0}));
  EXPECT_EQ(MicrobatchesInFlight({2, 2, 2}), (std::vector<int64_t>{4, 2, 0}));
  EXPECT_EQ(MicrobatchesInFlight({3, 1}), (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(MicrobatchesInFlight({1, 3}), (std::vector<int64_t>{5, 0}));
  EXPECT_EQ(MicrobatchesInFlight({2, 3}), (std::vector<int64_t>{6, 0}));
  EXPECT_EQ(MicrobatchesInFlight({4}), (std::vector<int64_t>{0}));
}

// XPipe aims at the version that the microbatch's own update replaces, SpecTrain at the first stage's update.
TEST(VersionRule, PredictedWeights_AreMovedToWhatTheyAimAt) {
  constexpr int64_t kStages = 8;
  const VersionRule own = RuleOf("predicted", kStages);
  const VersionRule aligned = RuleOf("spectrain", kStages);
  for (int64_t depth = 0; depth < kStages; ++depth) {
    const int64_t stage = kStages - 1 - depth;
    for (int64_t k = kStages; k < kMicrobatches; ++k) {
      ASSERT_EQ(own.ForwardAhead(k, depth), depth);
      ASSERT_EQ(own.BackwardAhead(k, depth), 0);
      ASSERT_EQ(aligned.ForwardAhead(k, depth), depth + stage / 2);
      ASSERT_EQ(aligned.BackwardAhead(k, depth), stage / 2);
    }
  }
}

// PipeMare T2: the backward's weights are moved back to those of the forward.
TEST(VersionRule, CorrectedWeights_AreMovedBackByTheDrift) {
  const VersionRule rule = RuleOf("corrected", 8, 3);
  for (int64_t depth = 0; depth < 8; ++depth) {
    for (int64_t k = 0; k < kMicrobatches; ++k) {
      ASSERT_EQ(rule.ForwardAhead(k, depth), 0);
      ASSERT_EQ(rule.BackwardAhead(k, depth),
                rule.Forward(k, depth) - rule.Backward(k, depth));
    }
  }
}

}  // namespace
}  // namespace penstock
