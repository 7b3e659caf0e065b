// Pulse: the executor's sign of life, which tells one that is stuck from one that waits for other workers.
//
// It grows with each action, and twice a second while the executor waits for a message, for credit or for a collective. It
// stands still while the executor computes, and if it is stuck. An observer must know how long an action may take, so the
// pulse is steady only while actions take what they always take. It is unsteady during the first steps and the first validation
// of a run, when things are compiled, recorded and read for the first time, and while the executor reads data: an observer has to
// be patient then. It does not show while the executor is held, or between two ranges, where checkpoints are copied and schedules
// derived.
//
// Where devices add up as a group of their own (compute/device_share.h), a wait for the other device counts as computing.
//
// Thread safety: the executor's thread, but for value().
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/deadline.h"
#include "base/mutex.h"
#include "worker/counter.h"

namespace penstock {

class Pulse {
 public:
  // Between two beats of an executor that waits.
  static constexpr absl::Duration kInterval = absl::Milliseconds(500);

  enum class Shows : uint8_t { kNot, kUnsteady, kSteady };

  void Beat() { beats_.Add(1); }
  // How it shows from now on.
  void Show(Shows shows) { shows_.store(shows, std::memory_order_relaxed); }
  Shows shows() const { return shows_.load(std::memory_order_relaxed); }

  // Any thread. Each at least 1, or 0 while it does not show that way.
  int64_t value() const { return ValueIf(Shows::kSteady); }
  int64_t unsteady_value() const { return ValueIf(Shows::kUnsteady); }

  // Calls `wait`, which waits for something until a time and returns a status, or DeadlineExceeded, having changed nothing,
  // when that time has come; again and again until `deadline`. Beats in between.
  template <typename Wait>
  auto BeatDuring(absl::Time deadline, Wait wait) {
    const CondVar::Clock::time_point end = Monotonic(deadline);
    while (true) {
      const CondVar::Clock::time_point begun = CondVar::Clock::now();
      const absl::Duration left = absl::FromChrono(end - begun);
      if (left <= kInterval) return wait(absl::Now() + left);
      auto result = wait(absl::Now() + kInterval);
      // An error that came sooner is one of what was waited for.
      const bool part_is_over = absl::FromChrono(CondVar::Clock::now() - begun) >= kInterval / 2;
      if (!absl::IsDeadlineExceeded(StatusOf(result)) || !part_is_over) return result;
      Beat();
    }
  }

 private:
  int64_t ValueIf(Shows wanted) const { return shows() == wanted ? 1 + beats_.value() : 0; }

  static const absl::Status& StatusOf(const absl::Status& status) { return status; }
  template <typename T>
  static const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
    return result.status();
  }

  Counter beats_;
  std::atomic<Shows> shows_ = Shows::kNot;
};

}  // namespace penstock
