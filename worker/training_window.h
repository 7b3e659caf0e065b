// TrainingWindow: how long a worker has been training so far, its waits at a held gate left out. It never goes
// back, as a counter of Prometheus must not.
//
// Thread safety: ns() by any thread, everything else by the executor's.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace penstock {

class TrainingWindow {
 public:
  // REQUIRES: `clock` outlives it.
  explicit TrainingWindow(Clock& clock) : clock_(clock) {}

  // A range begins, or a wait at the gate is over.
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    since_ns_ = clock_.MonotonicNs();
  }
  // The range ends, or a wait at the gate begins.
  void Close() {
    MutexLock lock(mutex_);
    done_ns_ += OpenNs();
    open_ = false;
  }

  int64_t ns() const {
    MutexLock lock(mutex_);
    return done_ns_ + OpenNs();
  }

  // Takes a time that the executor has read. Takes no lock: no other thread changes it.
  // REQUIRES: the executor's thread, and the window is open.
  int64_t NsAt(int64_t now_ns) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return done_ns_ + now_ns - since_ns_;
  }

 private:
  int64_t OpenNs() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return open_ ? clock_.MonotonicNs() - since_ns_ : 0;
  }

  Clock& clock_;
  mutable Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t since_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t done_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
