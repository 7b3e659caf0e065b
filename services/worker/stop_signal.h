// StopSignal: what tells a program to end: SIGTERM, SIGINT, its parent going away, or itself.
//
// Signals are received through a file descriptor, so nothing runs in a signal handler. Make it first
// in main, before any other thread: threads inherit the blocked signals.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace penstock {

struct StopReason {
  std::string text;  // for the log: "SIGTERM"; empty: none came
  // By a signal, which is a wish; otherwise its cluster is gone.
  bool by_signal = false;
};

class StopSignal {
 public:
  // `parent_fd`: a pipe or socket whose other end the parent holds; -1 if there is none.
  explicit StopSignal(int parent_fd);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Waits for one of them and says which, for the log.
  StopReason Await();
  // Waits until then, at most until `timeout` has passed.
  StopReason AwaitFor(absl::Duration timeout);

  // Makes Await return `reason`. Any thread.
  void Trigger(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const int parent_fd_;
  int signal_fd_ = -1;
  int event_fd_ = -1;
  Mutex mutex_;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
