#include "coordinator/drift.h"

#include <gtest/gtest.h>

#include <vector>

namespace penstock {
namespace {

using Turn = Drift::Turn;

// The turns that `measured` makes of each step, as (step, turn).
std::vector<std::pair<int, Turn>> TurnsOf(Drift drift, const std::vector<double>& measured) {
  std::vector<std::pair<int, Turn>> turns;
  for (size_t i = 0; i < measured.size(); ++i) {
    const Turn turn = drift.OnStep(measured[i]);
    if (turn != Turn::kNone) turns.emplace_back(static_cast<int>(i) + 1, turn);
  }
  return turns;
}

using Turns = std::vector<std::pair<int, Turn>>;

TEST(DriftOf, Double_IsAHundredPercentMore) {
  EXPECT_DOUBLE_EQ(DriftOf(0.1, 0.2), 1.0);
  EXPECT_DOUBLE_EQ(DriftOf(0.1, 0.05), -0.5);
  EXPECT_DOUBLE_EQ(DriftOf(3.0, 3.0), 0.0);
}

TEST(Drift, WithinTheBound_IsNeverTold) {
  for (const double measured : {0.81, 0.95, 1.0, 1.19}) {
    EXPECT_EQ(TurnsOf(Drift(1.0, 0.2, 5), std::vector<double>(50, measured)), Turns()) << measured;
  }
}

TEST(Drift, OutsideOfTheBound_IsToldOnceAfterAWindow) {
  for (const double measured : {0.1, 0.79, 1.21, 40.0}) {
    EXPECT_EQ(TurnsOf(Drift(1.0, 0.2, 5), std::vector<double>(50, measured)),
              (Turns{{5, Turn::kLeaves}}))
        << measured;
  }
}

TEST(Drift, BackInside_IsToldOnceAWindowLater) {
  std::vector<double> measured(10, 2.0);
  measured.insert(measured.end(), 10, 1.0);
  EXPECT_EQ(TurnsOf(Drift(1.0, 0.2, 4), measured),
            (Turns{{4, Turn::kLeaves}, {11, Turn::kReturns}}));
}

TEST(Drift, SwingingAboutTheBound_IsToldOnceAWindowAtMost) {
  std::vector<double> measured;
  for (int i = 0; i < 100; ++i) measured.push_back(i % 2 == 0 ? 1.3 : 1.1);
  const Turns turns = TurnsOf(Drift(1.0, 0.2, 10), measured);
  EXPECT_LE(turns.size(), 10u);
  EXPECT_GE(turns.size(), 5u);
  for (size_t i = 1; i < turns.size(); ++i) {
    EXPECT_GE(turns[i].first - turns[i - 1].first, 10);
    EXPECT_NE(turns[i].second, turns[i - 1].second);
  }
}

TEST(Drift, WindowOfOneStep_TurnsAtOnce) {
  EXPECT_EQ(TurnsOf(Drift(1.0, 0.5, 1), {2.0, 2.0, 1.0, 2.0}),
            (Turns{{1, Turn::kLeaves}, {3, Turn::kReturns}, {4, Turn::kLeaves}}));
}

}  // namespace
}  // namespace penstock
