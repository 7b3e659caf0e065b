// SearchSplits: on which workers the stages of a candidate are best, and with which layers.
//
// Branch and bound with the simulator as judge. The layers of one stage after the other are chosen, for every order of
// the workers that differ in speed, memory or network, and a beginning is given up as soon as no end of it can be better
// than what is known: no worker is busy for longer in a step than the step lasts; where a step drains, its first
// microbatch comes down to a stage and its last one goes back up from it, beside the stage's own work; and the layers
// that are left keep the workers that are left busy. What remains is simulated, and its memory counted to the byte.
//
// The search for the least memory is the same with the weights that a worker holds at least.
//
// Pure functions but for the clock behind the budget.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/graph/time_budget.h"
#include "planner/job/candidate.h"
#include "planner/job/candidate_judge.h"

namespace penstock {

struct SplitSearchResult {
  std::optional<JudgedCandidate> best;  // absent: none that is better than what was known
  bool is_complete = true;  // no other placement is better; else the search was cut short
};

// How far searches may go, all together.
struct SearchEffort {
  int64_t placements = 0;  // that may still be judged
  TimeBudget& budget;

  // Takes one, or a share of one for less; false: there are none left.
  bool Take(int64_t steps);
};

// Finds the shortest step below `known_s` (infinite if none is known). REQUIRES: judge.may_run().
SplitSearchResult SearchShortestStep(const CandidateJudge& judge, double known_s,
                                     SearchEffort& effort);

// Finds the least memory on the worker that needs most, if below `known_bytes`. REQUIRES: judge.may_run().
SplitSearchResult SearchLeastMemory(const CandidateJudge& judge, int64_t known_bytes,
                                    SearchEffort& effort);

// Returns a bound: no placement of the candidate has a shorter step. REQUIRES: judge.may_run().
double StepBoundSeconds(const CandidateJudge& judge);

}  // namespace penstock
