#include "studies/experiments/loss_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

TEST(LossOverTicksTest, PipeDream_SeesALossEveryOtherTick) {
  for (const int32_t stages : {1, 2, 5, 16}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence sequence, PipeDreamSequence(stages, 12));
    std::vector<double> losses(12);
    std::iota(losses.begin(), losses.end(), 0.0);
    const Curve curve = LossOverTicks(losses, sequence, 1);
    ASSERT_EQ(curve.size(), 12u);
    for (int64_t m = 0; m < 12; ++m) {
      EXPECT_EQ(curve[m].tick, stages + 2 * m);
      EXPECT_EQ(curve[m].gap, losses[m]);
    }
  }
}

TEST(LossOverTicksTest, LocalSgd_WaitsAtItsBarriers) {
  const int32_t stages = 4;
  const int64_t local_steps = 3;
  const int64_t round = stages * local_steps;
  const TickSequence sequence = LocalSgdSequence({stages, stages, local_steps}, 2 * round);
  const std::vector<double> losses(2 * round, 1.0);
  const Curve curve = LossOverTicks(losses, sequence, 1);
  ASSERT_EQ(static_cast<int64_t>(curve.size()), 2 * round);
  for (int64_t m = 0; m < 2 * round; ++m) {
    const int64_t round_begin = m / round * (2 * round + 2 * (stages - 1));
    EXPECT_EQ(curve[m].tick, round_begin + stages + 2 * (m % round));
  }
}

TEST(LossOverTicksTest, Window_IsTheMeanOfTheLastLosses) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence sequence, PipeDreamSequence(2, 5));
  const Curve curve = LossOverTicks({6.0, 4.0, 2.0, 9.0, 1.0}, sequence, 3);
  const std::vector<double> means = {6.0, 5.0, 4.0, 5.0, 4.0};
  for (size_t i = 0; i < means.size(); ++i) EXPECT_DOUBLE_EQ(curve[i].gap, means[i]);
}

TEST(LossOverTicksTest, DivergedRun_IsInfiniteFromThere) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence sequence, PipeDreamSequence(2, 5));
  const Curve curve = LossOverTicks({6.0, 60.0}, sequence, 2);
  ASSERT_EQ(curve.size(), 5u);
  EXPECT_EQ(curve[1].gap, 33.0);
  for (size_t i = 2; i < 5; ++i) EXPECT_TRUE(std::isinf(curve[i].gap));
}

TEST(TailBeginTest, AnyCurve_HasAPointInItsTail) {
  for (const int32_t stages : {1, 3, 16}) {
    for (const int64_t microbatches : {1, 2, 50}) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const TickSequence sequence,
                                    PipeDreamSequence(stages, microbatches));
      const Curve curve = LossOverTicks(std::vector<double>(microbatches, 1.0), sequence, 1);
      EXPECT_LE(TailBegin(curve), curve.back().tick);
      EXPECT_GE(TailBegin(curve), curve.back().tick * 4 / 5 - 1);
    }
  }
}

}  // namespace
}  // namespace penstock
