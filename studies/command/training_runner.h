// TrainingRunner: where a study that trains runs: on the threads of this process, with a bar and an estimate on
// standard error, until it is done or Ctrl-C.
//
// The estimate comes from the first microbatches of the runs themselves, as many at a time as later.
//
// Thread safety: that of TrainingContext.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "services/cli/console.h"
#include "services/cli/interrupt.h"
#include "services/cli/progress.h"
#include "services/cli/progress_display.h"
#include "studies/experiments/training_context.h"

namespace penstock {

class TrainingRunner : public TrainingContext {
 public:
  // REQUIRES: threads > 0; the arguments outlive the runner.
  TrainingRunner(int threads, Console& console, Clock& clock, Interrupt& interrupt);

  // After Ctrl-C a run ends with its microbatch.
  absl::Status ForEachRun(int64_t runs, int64_t microbatches,
                          const std::function<absl::Status(int64_t)>& train) override;
  absl::Status MicrobatchDone(double loss, int64_t tokens) override;
  void Note(const std::string& line) override;

 private:
  // When the runs began in earnest: after the first microbatch of each, which also fetches its memory.
  struct Timing {
    int64_t warm_microbatches = 0;   // that do not count
    int64_t timed_microbatches = 0;  // that do
    int64_t start_ns = 0;
    std::optional<double> seconds;  // of a microbatch, as many at a time as there are threads
  };

  void Time(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Estimate(double seconds) const;
  // Shows what has happened. Called on the study's thread.
  void Look();

  const int threads_;
  Console& console_;
  Clock& clock_;
  Interrupt& interrupt_;
  ProgressDisplay display_;  // of the study's thread
  int64_t runs_ = 0;
  int64_t microbatches_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> failed_ = false;
  bool estimated_ = false;

  Mutex mutex_;
  int64_t microbatches_done_ ABSL_GUARDED_BY(mutex_) = 0;
  Progress progress_ ABSL_GUARDED_BY(mutex_) = Progress(0);
  Timing timing_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
