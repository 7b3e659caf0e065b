// PipeDream: 1F1B that never drains. A stage updates after every backward; backward reads the
// weights that its forward read, which are stashed until then (weight policy kStash). No bubble, at
// the price of staleness.
//
// The order is static (S-1-s warm-up forwards, then forward and backward in turn), so the version
// that each microbatch reads does not depend on timing.
//
// With S stages, N microbatches between two cuts, stage s counted from 0, F and whole backward 1
// each:
//   length            2N + 2(S-1)
//   activation stash  min(N, S-s) on stage s
//   weight versions   S-s on stage s, if N >= 2(S-1-s)
//   version read      max(0, k - (S-1-s)) by forward and backward of microbatch k
//   staleness         S-1-s, once the pipeline is full
//   block delay       at most floor(S^2 - S/2), mean (S^2-1)/2 (block_delay.h)
//
// With r(s) replicas of stage s (1F1B-RR) the stage updates after every r(s) microbatches with the mean of their
// gradients, and w(s) updates (warm_up.cc) take the place of S-1-s:
//   activation stash  min(N/r(s), w(s)+1) on each replica
//   weight versions   w(s)+1
//   version read      max(0, floor(k/r(s)) - w(s))
//   staleness         w(s)
//
// The method vertical-sync is this order with the weights of the same name (policies/delayed.cc): a microbatch reads on
// every stage the version that its forward read on the first one. Length and activations are the same, and on every stage
//   weight versions   S
//   version read      max(0, k - (S-1)) by forward and backward of microbatch k
//   staleness         S-1, once the pipeline is full
//
// Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019.
#include "schedule/catalog/continuous.h"

namespace penstock {

Program PipeDream(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  return ContinuousOneFOneB(options, StageOf(worker), range, 1);
}

}  // namespace penstock
