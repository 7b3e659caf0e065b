#include "base/deadline.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using Clock = CondVar::Clock;

TEST(Deadline, Infinite_IsFarAwayAndDoesNotOverflow) {
  const Clock::time_point in_a_month = Clock::now() + std::chrono::hours(24 * 30);
  EXPECT_GT(After(absl::InfiniteDuration()), in_a_month);
  EXPECT_GT(Monotonic(absl::InfiniteFuture()), in_a_month);
}

TEST(Deadline, OfThePast_IsNotInTheFuture) {
  for (const Clock::time_point until :
       {After(-absl::InfiniteDuration()), After(-absl::Seconds(5)), Monotonic(absl::InfinitePast()),
        Monotonic(absl::UnixEpoch())}) {
    EXPECT_LE(until, Clock::now());
  }
}

TEST(Deadline, Of100Seconds_IsNeitherMuchSoonerNorLater) {
  const Clock::time_point before = Clock::now();
  const Clock::time_point until = Monotonic(absl::Now() + absl::Seconds(100));
  EXPECT_GT(until, before + std::chrono::seconds(50));
  EXPECT_LT(until, Clock::now() + std::chrono::seconds(150));
}

}  // namespace
}  // namespace penstock
