// VirtualTime: the clock of a simulated world, and everything that will happen in it.
//
// Time passes only from one event to the next. Events of one moment happen in the order they were added, so a world that
// draws all its chances from one seed has one history.
//
// Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"

namespace penstock {

class VirtualTime final : public Clock {
 public:
  int64_t MonotonicNs() override { return now_ns_; }
  absl::Time WallTime() override { return wall_start_ + absl::Nanoseconds(now_ns_); }
  // Moves the clock by which people live, not that of timeouts.
  void MoveWallClock(absl::Duration by) { wall_start_ += by; }

  void After(absl::Duration wait, std::function<void()> what) {
    const int64_t wait_ns = std::max<int64_t>(absl::ToInt64Nanoseconds(wait), 0);
    events_.emplace(std::pair(now_ns_ + wait_ns, next_++), std::move(what));
  }
  // Lets the next event happen, if one is due by `until_ns`. Returns whether one was; else it is `until_ns` now.
  bool RunNext(int64_t until_ns) {
    const auto first = events_.begin();
    if (first == events_.end() || first->first.first > until_ns) {
      now_ns_ = std::max(now_ns_, until_ns);
      return false;
    }
    now_ns_ = first->first.first;
    const std::function<void()> what = std::move(first->second);
    events_.erase(first);
    what();
    return true;
  }

 private:
  int64_t now_ns_ = 1'000'000'000;
  absl::Time wall_start_ = absl::FromUnixMillis(1'700'000'000'000);
  int64_t next_ = 0;
  std::map<std::pair<int64_t, int64_t>, std::function<void()>> events_;  // by (time, order)
};

}  // namespace penstock
