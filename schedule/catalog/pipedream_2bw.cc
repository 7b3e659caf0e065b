// PipeDream-2BW: 1F1B that never drains, with an update per step and double-buffered weights. Forward and
// backward of step t read the version before the newest that step t - 1 could leave them, on every stage
// the same: W(t+1) = W(t) - rate * gradient(W(t-1)), a delay of one update whatever the depth.
//
// With S stages, M >= S microbatches in a step, stage s and microbatch k of a range counted from 0, and a
// backward as one piece:
//   length            2N + 2(S-1) for N microbatches
//   activation stash  min(N, S-s) on stage s
//   weight versions   at most 2 (for M >= S-1; M = S-2 reads a version that is not made yet)
//   version read      max(0, floor(k/M) - 1) by forward and backward of microbatch k
//   staleness         1 update on every stage, 0 for the first step of a range
//
// With r(s) replicas of stage s each does every r(s)-th microbatch, and their sums of gradients are added up before the
// update of a step, as the paper has it for pipelines beside each other. w(s) forwards (warm_up.cc) take the place of S-1-s,
// and M >= (w(s)+1) r(s) on every stage that of M >= S; versions and staleness are the same.
//   activation stash  min(N/r(s), w(s)+1) on each replica
//
// Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021, arXiv 2006.09503.
#include "schedule/catalog/continuous.h"

namespace penstock {

Program PipeDream2BW(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  return ContinuousOneFOneB(options, StageOf(worker), range, options.microbatches_per_step);
}

}  // namespace penstock
