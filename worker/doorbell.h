// Doorbell: wakes an executor that waits for any of several things, such as the next message of any edge.
//
//   const int64_t heard = bell.rings();
//   ... nothing to do yet ...
//   bell.WaitBeyond(heard, until);
//
// A ring between the two calls ends the wait at once, so none is missed.
//
// Thread safety: any thread. A caller may hold its own lock; the bell's own is held for a moment only.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace penstock {

class Doorbell {
 public:
  void Ring() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(mutex_);
      ++rings_;
    }
    rung_.NotifyAll();
  }

  int64_t rings() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return rings_;
  }

  // Waits until it has rung more than `heard` times. False if `until` passed first.
  bool WaitBeyond(int64_t heard, CondVar::Clock::time_point until) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (rings_ == heard) {
      if (!rung_.WaitUntil(mutex_, until) && rings_ == heard) return false;
    }
    return true;
  }

 private:
  mutable Mutex mutex_;
  CondVar rung_;
  int64_t rings_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
