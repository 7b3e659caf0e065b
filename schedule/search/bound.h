// The least time that any order of a step can take.
//
// For every worker, the passes it must run, each no sooner than its head (the shortest way from the start
// of the step to it) and with its tail (the shortest way from it to the end of the step) after it. The
// worker can do one at a time, so over every set of its passes
//
//   makespan >= earliest head of the set + work of the set + shortest tail of the set.
//
// The largest of these is the length of Jackson's preemptive schedule of the passes (Carlier, "The
// one-machine sequencing problem", EJOR 1982), which is found by sorting.
//
// Heads and tails count the passes that must come before and after on the same worker too, and the memory:
// F of microbatch m + L needs W of m where a worker holds at most L. Steps that run on are bounded as one long step,
// without the updates between them.
#pragma once

#include <cstdint>

#include "schedule/search/problem.h"

namespace penstock {

// Nanoseconds. Memory and time are in proportion to the passes (times their logarithm).
int64_t StepBound(const StepProblem& problem);

}  // namespace penstock
