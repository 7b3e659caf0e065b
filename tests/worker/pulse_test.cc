#include "worker/pulse.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(Pulse, Value_IsZeroUnlessItShows) {
  Pulse pulse;
  EXPECT_EQ(pulse.value(), 0);
  pulse.Show(Pulse::Shows::kSteady);
  EXPECT_EQ(pulse.value(), 1) << "also before the first beat";
  pulse.Beat();
  EXPECT_EQ(pulse.value(), 2);
  pulse.Show(Pulse::Shows::kNot);
  EXPECT_EQ(pulse.value(), 0);
}

TEST(Pulse, Unsteady_ShowsApartAndBeatsOn) {
  Pulse pulse;
  pulse.Beat();
  pulse.Show(Pulse::Shows::kUnsteady);
  EXPECT_EQ(pulse.value(), 0) << "older coordinators must not judge it";
  EXPECT_EQ(pulse.unsteady_value(), 2);
  pulse.Show(Pulse::Shows::kSteady);
  EXPECT_EQ(pulse.value(), 2);
  EXPECT_EQ(pulse.unsteady_value(), 0);
}

// Waits as a transport does: until the time that it is given.
TEST(Pulse, LongWait_BeatsMeanwhileAndEndsAtItsDeadline) {
  Pulse pulse;
  pulse.Show(Pulse::Shows::kSteady);
  const absl::Time begun = absl::Now();
  int parts = 0;
  const absl::Status waited =
      pulse.BeatDuring(begun + 2.5 * Pulse::kInterval, [&](absl::Time until) {
        ++parts;
        EXPECT_LE(until - absl::Now(), Pulse::kInterval);
        absl::SleepFor(until - absl::Now());
        return absl::DeadlineExceededError("no message in time");
      });
  EXPECT_THAT(waited, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no message")));
  EXPECT_GE(absl::Now() - begun, 2.4 * Pulse::kInterval);
  EXPECT_EQ(parts, 3);
  EXPECT_EQ(pulse.value(), 3);
}

TEST(Pulse, WhatIsWaitedForComes_OrFails_EndsTheWait) {
  Pulse pulse;
  int calls = 0;
  const absl::StatusOr<int> came =
      pulse.BeatDuring(absl::Now() + absl::Hours(1), [&](absl::Time) -> absl::StatusOr<int> {
        ++calls;
        return 7;
      });
  EXPECT_THAT(came, IsOkAndHolds(7));
  // An edge may have failed with this code, and returns it at once for ever.
  const absl::Status failed = pulse.BeatDuring(absl::Now() + absl::Hours(1), [&](absl::Time) {
    ++calls;
    return absl::DeadlineExceededError("a wait of the peer took too long");
  });
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("of the peer")));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace penstock
