// Clock: the only source of time. Logic takes one through its constructor; main() makes the real one.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace penstock {

// Thread safety: all methods may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;

  // Nanoseconds on a clock that never goes back. Differences only: the origin is arbitrary, but the
  // same for all processes of one machine.
  virtual int64_t MonotonicNs() = 0;

  // The calendar time, for people and records; never for timeouts.
  virtual absl::Time WallTime() = 0;
};

// The machine's own clock. Lives as long as the program.
Clock& RealClock();

}  // namespace penstock
