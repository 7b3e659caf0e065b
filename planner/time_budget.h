// TimeBudget: until when planning may go on looking for something better.
//
// Thread-compatible; reads the clock at most once in so many questions, so that an inner loop may ask.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/deadline.h"

namespace penstock {

class TimeBudget {
 public:
  // From now on. `clock` must outlive it.
  TimeBudget(Clock& clock, absl::Duration budget)
      : clock_(clock),
        end_ns_(clock.MonotonicNs() + absl::ToInt64Nanoseconds(std::min(budget, kLongestWait))) {}

  // Whether the time has passed, asked after `steps` of a few nanoseconds each; once true, always.
  bool IsSpent(int64_t steps = kStepsBetweenReadings) {
    steps_ += steps;
    if (steps_ < kStepsBetweenReadings) return is_spent_;
    steps_ = 0;
    is_spent_ = is_spent_ || clock_.MonotonicNs() >= end_ns_;
    return is_spent_;
  }

 private:
  static constexpr int64_t kStepsBetweenReadings = 100'000;

  Clock& clock_;
  const int64_t end_ns_;
  int64_t steps_ = 0;
  bool is_spent_ = false;
};

}  // namespace penstock
