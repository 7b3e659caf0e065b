#include "studies/theory/delays.h"

#include <gtest/gtest.h>

#include <array>

#include "schedule/block_delay.h"
#include "schedule/catalog/catalog.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

Delays Count(int32_t stages, DelayConvention convention) {
  const absl::StatusOr<TickSequence> sequence =
      PipeDreamSequence(stages, SteadyMicrobatches(stages));
  EXPECT_THAT(sequence, IsOk());
  return CountDelays(*sequence, convention);
}

// Measured apart from this code, with another simulator; for S = 1, 2, ..., 16.
struct Known {
  int64_t a_max;
  double a_mean;
  int64_t descending_max;
  double b_mean;
  int64_t c_max;
  double c_mean;
  double d_mean;
};
constexpr std::array<Known, 16> kKnown = {{{0, 0, 0, 0, 0, 0, 0},
                                           {3, 1.5, 2, 2.0, 2, 1.0, 2.0},
                                           {7, 4, 7, 4.667, 6, 3.333, 4.333},
                                           {14, 7.5, 13, 8.5, 12, 6.5, 8.0},
                                           {22, 12, 22, 13.2, 20, 10.8, 12.4},
                                           {33, 17.5, 32, 19.0, 30, 16.0, 18.0},
                                           {45, 24, 45, 25.714, 42, 22.286, 24.429},
                                           {60, 31.5, 59, 33.5, 56, 29.5, 32.0},
                                           {76, 40, 76, 42.222, 72, 37.778, 40.444},
                                           {95, 49.5, 94, 52.0, 90, 47.0, 50.0},
                                           {115, 60, 115, 62.727, 110, 57.273, 60.455},
                                           {138, 71.5, 137, 74.5, 132, 68.5, 72.0},
                                           {162, 84, 162, 87.231, 156, 80.769, 84.462},
                                           {189, 97.5, 188, 101.0, 182, 94.0, 98.0},
                                           {217, 112, 217, 115.73, 210, 108.27, 112.47},
                                           {248, 127.5, 247, 131.5, 240, 123.5, 128.0}}};
constexpr double kRounded = 5.1e-3;

TEST(DelaysTest, PipeDream_EveryConvention_HasTheKnownFigures) {
  for (int32_t stages = 1; stages <= 16; ++stages) {
    SCOPED_TRACE(stages);
    const Known& known = kKnown[stages - 1];
    const Delays a = Count(stages, DelayConvention::kReplay);
    EXPECT_EQ(a.max, known.a_max);
    EXPECT_NEAR(a.mean, known.a_mean, kRounded);
    EXPECT_EQ(Count(stages, DelayConvention::kReplayDescending).max, known.descending_max);
    const Delays b = Count(stages, DelayConvention::kReadAtStart);
    EXPECT_EQ(b.max, known.a_max);
    EXPECT_NEAR(b.mean, known.b_mean, kRounded);
    const Delays c = Count(stages, DelayConvention::kReadAtEnd);
    EXPECT_EQ(c.max, known.c_max);
    EXPECT_NEAR(c.mean, known.c_mean, kRounded);
    const Delays d = Count(stages, DelayConvention::kTickToTick);
    EXPECT_EQ(d.max, known.a_max);
    EXPECT_NEAR(d.mean, known.d_mean, kRounded);
    EXPECT_EQ(Count(stages, DelayConvention::kOwnBlock).max, known.a_max);
    const Delays local = Count(stages, DelayConvention::kLocal);
    EXPECT_EQ(local.max, stages - 1);
    EXPECT_DOUBLE_EQ(local.mean, (stages - 1) / 2.0);
  }
}

TEST(DelaysTest, PipeDream_ClosedForms_HoldForEveryConvention) {
  for (int32_t stages = 1; stages <= 24; ++stages) {
    for (const DelayConvention convention : kDelayConventions) {
      SCOPED_TRACE(std::string(ConventionLetter(convention)) + " of " + std::to_string(stages));
      const Delays counted = Count(stages, convention);
      const Delays form = PipeDreamDelays(stages, convention);
      EXPECT_EQ(counted.max, form.max);
      EXPECT_NEAR(counted.mean, form.mean, 1e-9);
      EXPECT_GT(counted.count, 0);
    }
  }
}

TEST(DelaysTest, Replay_CountsAsTheProductDoes) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Method* const method, FindMethod("pipedream"));
  for (const int32_t stages : {1, 2, 5, 8}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const BlockDelay product,
        PredictBlockDelay(*method, {.topology = StraightPipeline(stages)}));
    const Delays counted = Count(stages, DelayConvention::kReplay);
    EXPECT_EQ(counted.max, product.max);
    EXPECT_DOUBLE_EQ(counted.mean, product.mean);
  }
}

TEST(DelaysTest, LocalSgd_OwnStage_IsNeverStale) {
  // A replica updates a stage once between its own forwards there; the stage's other updates belong to
  // other replicas, of which at most R - 1 come between.
  const TickSequence sequence =
      LocalSgdSequence({.stages = 4, .replicas = 4, .local_steps = 3}, 96);
  EXPECT_LE(CountDelays(sequence, DelayConvention::kLocal).max, 3);
}

}  // namespace
}  // namespace penstock
