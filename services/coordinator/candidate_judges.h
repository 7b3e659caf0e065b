// CandidateJudges: the search for a job's candidates, on a thread of its own, because it takes seconds.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "coordinator/effects.h"
#include "services/coordinator/event_loop.h"
#include "services/rpc/task_pool.h"

namespace penstock {

// Thread safety: Perform from any thread.
class CandidateJudges {
 public:
  // REQUIRES: loop and clock outlive it.
  CandidateJudges(EventLoop& loop, Clock& clock);
  // Searches under way end soon, without a plan.
  ~CandidateJudges() { stopping_ = true; }

  // Answers with CandidatesJudged.
  void Perform(const JudgeCandidates& judge);

 private:
  static constexpr int kTasksMax = 256;

  EventLoop& loop_;
  Clock& clock_;
  std::atomic<bool> stopping_ = false;
  TaskPool tasks_;
};

}  // namespace penstock
