// FinishedRuns: the last state of a worker's runs, kept for a while so that a scrape sees how they ended.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/metrics/run_metrics.h"

namespace penstock {

class FinishedRuns {
 public:
  static constexpr absl::Duration kKeptFor = absl::Minutes(5);
  // The oldest goes first, should more end in that time.
  static constexpr size_t kRunsMax = 16;

  // A run has ended at `now_ns` of a monotonic clock. It takes the place of an earlier one of its job.
  void Add(RunSnapshot run, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the runs to show at `now_ns`: those that ended less than kKeptFor ago, and `current` if it has
  // begun and is none of them. An earlier attempt at its job is then left out.
  std::vector<RunSnapshot> Show(RunSnapshot current, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until all that ended have been shown. False if `deadline` came first.
  bool AwaitShown(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Kept {
    RunSnapshot run;
    int64_t ended_ns = 0;
    bool shown = false;
  };
  bool AllShown() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar shown_;
  std::deque<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // by time
};

}  // namespace penstock
