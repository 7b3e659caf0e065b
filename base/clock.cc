#include "base/clock.h"

#include <time.h>

#include "absl/time/clock.h"

namespace penstock {
namespace {

class MachineClock : public Clock {
 public:
  int64_t MonotonicNs() override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
  absl::Time WallTime() override { return absl::Now(); }
};

}  // namespace

Clock& RealClock() {
  static MachineClock clock;
  return clock;
}

}  // namespace penstock
