// A clock that goes on by the same time with every look at it.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace penstock {

class TickingClock : public Clock {
 public:
  explicit TickingClock(int64_t tick_ns) : tick_ns_(tick_ns) {}
  int64_t MonotonicNs() override { return now_ns_ += tick_ns_; }
  absl::Time WallTime() override { return absl::FromUnixNanos(now_ns_); }

 private:
  const int64_t tick_ns_;
  int64_t now_ns_ = 0;
};

}  // namespace penstock
