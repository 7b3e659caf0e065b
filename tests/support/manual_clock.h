// A clock that a test moves.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace penstock {

class ManualClock : public Clock {
 public:
  explicit ManualClock(int64_t start_ns = 0) : now_ns(start_ns) {}
  int64_t MonotonicNs() override { return now_ns; }
  absl::Time WallTime() override { return absl::FromUnixNanos(now_ns); }
  int64_t now_ns;
};

}  // namespace penstock
