// TimeBudget: until when planning may go on looking for something better.
//
// Thread-compatible. It reads the clock at most once in many questions, so that an inner loop may ask.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/deadline.h"

namespace penstock {

class TimeBudget {
 public:
  // Counts from now on. `clock` must outlive it.
  TimeBudget(Clock& clock, absl::Duration budget)
      : TimeBudget(clock, clock.MonotonicNs() +
                              absl::ToInt64Nanoseconds(std::min(budget, kLongestWait))) {}

  // Returns a budget of a part of the time that is left.
  TimeBudget Part(double share) const {
    const int64_t now_ns = clock_.MonotonicNs();
    const auto left_ns = static_cast<double>(std::max<int64_t>(0, end_ns_ - now_ns));
    return {clock_, now_ns + static_cast<int64_t>(share * left_ns)};
  }

  // Returns whether the time has passed, asked after `steps` of a few nanoseconds each. Once true, it stays true.
  bool IsSpent(int64_t steps = kStepsBetweenReadings) {
    steps_ += steps;
    if (steps_ < kStepsBetweenReadings) return is_spent_;
    steps_ = 0;
    is_spent_ = is_spent_ || clock_.MonotonicNs() >= end_ns_;
    return is_spent_;
  }

 private:
  static constexpr int64_t kStepsBetweenReadings = 100'000;

  TimeBudget(Clock& clock, int64_t end_ns) : clock_(clock), end_ns_(end_ns) {}

  Clock& clock_;
  const int64_t end_ns_;
  int64_t steps_ = 0;
  bool is_spent_ = false;
};

}  // namespace penstock
