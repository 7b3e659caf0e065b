// Local search: moves passes within the lists of an order, mostly those on its critical path, and keeps
// what does not make it longer by more than a threshold, which falls to zero (threshold accepting: Dueck
// and Scheuer, Journal of Computational Physics 1990).
//
// Whole numbers and a counted budget alone, so the same call gives the same order everywhere.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "schedule/search/problem.h"
#include "schedule/search/step_clock.h"

namespace penstock {

struct TimedOrder {
  StepOrder order;
  int64_t makespan_ns = StepClock::kNever;
};

struct ImproveOptions {
  int64_t moves = 0;               // tried
  int64_t threshold_permille = 0;  // of the length, at the start
  int64_t bound_ns = 0;            // nothing is shorter: the search stops there
};

// The shortest order met, from `start` on. REQUIRES: `start` ends.
TimedOrder Improve(const StepProblem& problem, const TimedOrder& start,
                   const ImproveOptions& options, RandomStream& random);

}  // namespace penstock
