// WorkerCaller: performs CallWorker effects: attempts, deadlines, retries.
//
// All calls are idempotent, so a call whose answer was lost is made again. The answer goes to the
// loop as an event.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "coordinator/effects.h"
#include "services/coordinator/event_loop.h"
#include "services/coordinator/worker_calls.h"

namespace penstock {

// Preparing takes a device, and reads data and a checkpoint; everything else is answered at once.
inline constexpr absl::Duration kPrepareTimeout = absl::Minutes(5);
inline constexpr absl::Duration kControlTimeout = absl::Seconds(3);
inline constexpr int kCallAttemptsMax = 3;
// For a run that is still prepared when the call's time is over, as where a worker fetches its data: a day, and the job's own limit
// (JobRunLimits::prepare_timeout_ms) ends it earlier unless its workers come further.
inline constexpr int kPrepareAttemptsMax = 288;
inline constexpr absl::Duration kCallRetryDelay = absl::Milliseconds(300);

// Thread safety: Perform on the loop's thread.
class WorkerCaller {
 public:
  // REQUIRES: both outlive the caller's calls.
  WorkerCaller(EventLoop& loop, WorkerCalls& calls) : loop_(loop), calls_(calls) {}

  void Perform(const CallWorker& call) { Attempt(std::make_shared<const CallWorker>(call), 1); }

 private:
  void Attempt(std::shared_ptr<const CallWorker> call, int attempt);

  EventLoop& loop_;
  WorkerCalls& calls_;
};

}  // namespace penstock
