#include "worker/hold_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/manual_clock.h"
#include "tests/support/status_matchers.h"
#include "worker/training_window.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(20);

TEST(HoldGate, Enter_NotHeld_GoesOn) {
  HoldGate gate(0, 4, kLong);
  for (int64_t m = 0; m < 10; ++m) {
    const auto passage = gate.Enter(m);
    ASSERT_THAT(passage, IsOk());
    EXPECT_FALSE(passage->cut);
    EXPECT_FALSE(passage->waited);
  }
}

TEST(HoldGate, CutStep_IsKnownOnceItWasSaid) {
  HoldGate gate(0, 4, kLong);
  EXPECT_EQ(gate.cut_step(), std::nullopt);
  ASSERT_THAT(gate.Hold(), IsOkAndHolds(0));
  EXPECT_EQ(gate.cut_step(), std::nullopt);
  ASSERT_THAT(gate.CutAt(2), IsOk());
  EXPECT_EQ(gate.cut_step(), 2);
}

TEST(HoldGate, Hold_InTheMiddleOfAStep_NamesItsEnd) {
  HoldGate gate(0, 4, kLong);
  EXPECT_THAT(HoldGate(3, 4, kLong).Hold(), IsOkAndHolds(3));
  ASSERT_THAT(gate.Enter(0), IsOk());
  EXPECT_THAT(gate.Hold(), IsOkAndHolds(1));
}

TEST(HoldGate, Hold_AfterTheLastMicrobatchOfAStepBegan_NamesThatStep) {
  HoldGate gate(0, 4, kLong);
  ASSERT_THAT(gate.Enter(3), IsOk());
  EXPECT_THAT(gate.Hold(), IsOkAndHolds(1));
}

TEST(HoldGate, Hold_Twice_NamesTheSameStepThoughTheExecutorWentOn) {
  HoldGate gate(0, 4, kLong);
  ASSERT_THAT(gate.Enter(0), IsOk());
  EXPECT_THAT(gate.Hold(), IsOkAndHolds(1));
  ASSERT_THAT(gate.Enter(1), IsOk());
  EXPECT_THAT(gate.Hold(), IsOkAndHolds(1));
}

TEST(HoldGate, Enter_HeldBeforeIt_WaitsForTheCut) {
  HoldGate gate(0, 4, kLong);
  ASSERT_THAT(gate.Enter(3), IsOk());
  ASSERT_THAT(gate.Hold(), IsOkAndHolds(1));
  std::atomic<bool> entered = false;
  std::atomic<int> waits = 0;
  std::thread executor([&] {
    const auto passage = gate.Enter(4, [&] { ++waits; });
    entered = true;
    ASSERT_THAT(passage, IsOk());
    EXPECT_TRUE(passage->waited);
    EXPECT_FALSE(passage->cut);  // the cut is later
    const auto next = gate.Enter(8, [&] { ++waits; });
    ASSERT_THAT(next, IsOk());
    EXPECT_TRUE(next->cut);
    EXPECT_EQ(next->cut_step, 2);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(entered);
  EXPECT_THAT(gate.CutAt(2), IsOk());
  executor.join();
  EXPECT_EQ(waits, 1);
}

TEST(TrainingWindow, WaitsInBetween_AreLeftOutAndItNeverGoesBack) {
  ManualClock clock{1000};
  TrainingWindow window(clock);
  EXPECT_EQ(window.ns(), 0);
  window.Open();
  clock.now_ns += 5;
  EXPECT_EQ(window.ns(), 5);
  window.Close();
  clock.now_ns += 70;
  EXPECT_EQ(window.ns(), 5);
  window.Open();
  EXPECT_EQ(window.ns(), 5);
  clock.now_ns += 2;
  window.Close();
  window.Close();
  EXPECT_EQ(window.ns(), 7);
}

TEST(HoldGate, Enter_NobodySaysWhereToCut_EndsAtTheTimeout) {
  HoldGate gate(0, 1, absl::Milliseconds(20));
  ASSERT_THAT(gate.Hold(), IsOkAndHolds(0));
  EXPECT_THAT(gate.Enter(0), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("held")));
}

TEST(HoldGate, Enter_Cancelled_ReturnsTheFirstReason) {
  HoldGate gate(0, 1, kLong);
  ASSERT_THAT(gate.Hold(), IsOk());
  std::thread canceller([&] { gate.Cancel(absl::AbortedError("first")); });
  EXPECT_THAT(gate.Enter(0), StatusIs(absl::StatusCode::kAborted, "first"));
  canceller.join();
  gate.Cancel(absl::InternalError("second"));
  EXPECT_THAT(gate.Enter(0), StatusIs(absl::StatusCode::kAborted, "first"));
}

TEST(HoldGate, CutAt_OutOfTurn_IsRefused) {
  HoldGate gate(0, 4, kLong);
  ASSERT_THAT(gate.Enter(5), IsOk());
  EXPECT_THAT(gate.CutAt(2), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("held")));
  ASSERT_THAT(gate.Hold(), IsOkAndHolds(2));
  EXPECT_THAT(gate.CutAt(1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("after step 1")));
  EXPECT_THAT(gate.CutAt(3), IsOk());
  EXPECT_THAT(gate.CutAt(3), IsOk());
  EXPECT_THAT(gate.CutAt(4),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("after step 3")));
}

TEST(HoldGate, Hold_AfterTheEnd_IsRefused) {
  HoldGate gate(0, 4, kLong);
  gate.Close();
  EXPECT_THAT(gate.Hold(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not executing")));
  EXPECT_THAT(gate.CutAt(1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not executing")));
}

// However Hold falls between two Enters, no microbatch beyond the boundary begins before the cut.
TEST(HoldGate, Hold_AtAnyMoment_NothingBeyondTheBoundaryBegins) {
  for (int round = 0; round < 200; ++round) {
    HoldGate gate(0, 3, kLong);
    std::atomic<int64_t> begun = 0;
    std::thread executor([&] {
      for (int64_t m = 0;; ++m) {
        const auto passage = gate.Enter(m);
        ASSERT_THAT(passage, IsOk());
        if (passage->cut) break;
        begun = m + 1;
      }
    });
    const auto held = gate.Hold();
    ASSERT_THAT(held, IsOk());
    for (int i = 0; i < 10; ++i) {
      EXPECT_LE(begun, *held * 3);
      std::this_thread::yield();
    }
    ASSERT_THAT(gate.CutAt(*held), IsOk());
    executor.join();
    EXPECT_EQ(begun, *held * 3);
  }
}

}  // namespace
}  // namespace penstock
