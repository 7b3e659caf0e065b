// PACI: 1F1B that never drains, with an update per step, or after a part of one, and a single version of the weights. Forward and
// backward both read the current ones, so the backward of a microbatch may read newer weights than its
// forward did: the drift, which the accumulation of gradients bounds.
//
// With S stages, a microbatches in an update, stage s counted from 0, and a backward as one piece:
//   length            2N + 2(S-1) for N microbatches
//   activation stash  min(N, S-s) on stage s
//   weight versions   1
//   version drift     at most ceil((S-1-s)/a) updates, reached once the pipeline is full
//
// With r(s) replicas of stage s each does every r(s)-th microbatch, and their sums of gradients are added up before the
// update. w(s) forwards (warm_up.cc) take the place of S-1-s:
//   activation stash  min(N/r(s), w(s)+1) on each replica
//   version drift     at most ceil(w(s) r(s)/a) updates
//
// The paper's stages start whatever is ready first, with at most S-s microbatches in flight; here the order
// is the one that this settles into, so that versions do not depend on timing.
//
// Elam, Rahimi, Mendelson, Baskin, arXiv 2606.07881, 2026.
#include "schedule/catalog/continuous.h"

namespace penstock {

Program Paci(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  return ContinuousOneFOneB(
      options, StageOf(worker), range,
      options.microbatches_per_update.value_or(options.microbatches_per_step));
}

}  // namespace penstock
