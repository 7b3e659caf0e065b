// Deadlines of waits, on the monotonic clock: a jump of the calendar clock ends no wait.
//
// Plain functions; any thread.
#pragma once

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace penstock {

// Longer waits are cut to this, so that no deadline overflows the clock.
inline constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

// When `wait` will have passed; now if it is negative.
inline CondVar::Clock::time_point After(absl::Duration wait) {
  return CondVar::Clock::now() +
         absl::ToChronoNanoseconds(std::clamp(wait, absl::ZeroDuration(), kLongestWait));
}

// The moment that is `deadline` on the calendar clock as it goes now.
inline CondVar::Clock::time_point Monotonic(absl::Time deadline) {
  return After(deadline - absl::Now());
}

}  // namespace penstock
