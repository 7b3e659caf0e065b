#include "studies/experiments/time_to_loss.h"

#include <gmock/gmock.h>

#include <limits>

namespace penstock {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::Optional;

// It falls by 1 in 10, rises by half, and falls by 1 in 20.
const TimedCurve kCurve = {{10.0, 4.0}, {20.0, 3.0}, {30.0, 3.5}, {50.0, 2.5}};

TEST(TimeToLoss, IsOnTheLineBetweenTwoPoints) {
  EXPECT_THAT(TimeToLoss(kCurve, 3.25), Optional(DoubleEq(17.5)));
  EXPECT_THAT(TimeToLoss(kCurve, 2.75), Optional(DoubleEq(45.0)));
  EXPECT_THAT(TimeToLoss(kCurve, 2.5), Optional(DoubleEq(50.0)));
}

TEST(TimeToLoss, IsTheFirstTime) { EXPECT_THAT(TimeToLoss(kCurve, 3.0), Optional(DoubleEq(20.0))); }

TEST(TimeToLoss, OutsideTheCurve_IsItsBeginOrNever) {
  EXPECT_THAT(TimeToLoss(kCurve, 4.0), Optional(DoubleEq(10.0)));
  EXPECT_THAT(TimeToLoss(kCurve, 9.0), Optional(DoubleEq(10.0)));
  EXPECT_THAT(TimeToLoss(kCurve, 2.4), Eq(std::nullopt));
  EXPECT_THAT(TimeToLoss({}, 2.4), Eq(std::nullopt));
  const TimedCurve diverged = {{10.0, std::numeric_limits<double>::infinity()}};
  EXPECT_THAT(TimeToLoss(diverged, 100.0), Eq(std::nullopt));
}

TEST(LossAt, IsOnTheLineBetweenTwoPoints) {
  EXPECT_DOUBLE_EQ(LossAt(kCurve, 17.5), 3.25);
  EXPECT_DOUBLE_EQ(LossAt(kCurve, 30.0), 3.5);
  EXPECT_DOUBLE_EQ(LossAt(kCurve, 45.0), 2.75);
  EXPECT_DOUBLE_EQ(LossAt(kCurve, 1.0), 4.0);
  EXPECT_DOUBLE_EQ(LossAt(kCurve, 60.0), 2.5);
}

TEST(MeanOf, IsThatOfEachPoint) {
  const TimedCurve other = {{10.0, 5.0}, {20.0, 4.0}, {30.0, 2.5}, {50.0, 2.0}};
  const std::vector<TimedCurve> curves = {kCurve, other};
  EXPECT_THAT(MeanOf(curves), ElementsAre(TimedLoss{10.0, 4.5}, TimedLoss{20.0, 3.5},
                                          TimedLoss{30.0, 3.0}, TimedLoss{50.0, 2.25}));
}

}  // namespace
}  // namespace penstock
