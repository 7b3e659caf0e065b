// HoldGate: where an executor can be stopped between two steps, from outside, at any moment.
//
// A drain has two halves, because workers are at different places: every worker is held and names the
// first step boundary that it has not begun to cross; then all of them get the largest of these. Between
// the halves an executor may finish what it has begun, but begins no microbatch beyond its boundary.
//
// Thread safety: Enter by the executor's thread, everything else by any.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace penstock {

class HoldGate {
 public:
  // `first_step`: steps done before the run. `hold_timeout`: longest wait between Hold and CutAt.
  HoldGate(int64_t first_step, int64_t microbatches_per_step, absl::Duration hold_timeout);

  struct Passage {
    bool cut = false;     // do not begin it: the range ends at cut_step
    bool waited = false;  // Enter blocked
    int64_t cut_step = 0;
  };
  // Asks to begin `microbatch` (RECV_F or F). Blocks while the gate is held before it; `on_wait` is
  // called first then, and may not use the gate.
  // Errors: DeadlineExceeded (no CutAt came), or the reason given to Cancel.
  absl::StatusOr<Passage> Enter(
      int64_t microbatch, absl::FunctionRef<void()> on_wait = [] {});

  // The earliest step boundary at which this worker can stop. Returns the same step each time.
  // Errors: FailedPrecondition (closed).
  absl::StatusOr<int64_t> Hold();
  // Errors: FailedPrecondition (closed, not held, below the held step, or another step than before).
  absl::Status CutAt(int64_t step);

  // The step after which the range ends, if that was said.
  std::optional<int64_t> cut_step() const;

  // Ends a wait in Enter and fails later ones. The first reason counts.
  void Cancel(const absl::Status& reason);
  // The reason given to Cancel, OK if there was none.
  absl::Status cancelled() const;
  // The run is over: nothing can be held any more.
  void Close();

 private:
  int64_t MicrobatchOf(int64_t step) const { return step * microbatches_per_step_; }
  bool MustWait(int64_t microbatch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t microbatches_per_step_;
  const absl::Duration hold_timeout_;
  int64_t begun_by_executor_;  // executor's thread only: frontier_ without the lock

  mutable Mutex mutex_;
  CondVar changed_;
  int64_t frontier_ ABSL_GUARDED_BY(mutex_);  // microbatches below it were begun
  std::optional<int64_t> held_step_ ABSL_GUARDED_BY(mutex_);
  std::optional<int64_t> cut_step_ ABSL_GUARDED_BY(mutex_);
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace penstock
