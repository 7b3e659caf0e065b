// ZB-H1: 1F1B with the backward in two pieces. Gradients of inputs go on at once, gradients of weights
// fill the drain, and no stage stashes more than 1F1B's first one.
//
// With S stages, M >= S microbatches in a step, times F, I and W of the three passes:
//   bubble            (S-1)(F+I-W) of a step's time on every worker, if F, I and W are equal
//   activation stash  S on every stage (between F and W)
//   weight versions   1; staleness 0
//
// Qi, Wan, Huang, Lin, "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv 2401.10241.
#include "schedule/catalog/zero_bubble.h"

namespace penstock {

Program ZeroBubbleH1(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const int64_t stages = options.topology.stages();
  return DelayedWeights(options, StageOf(worker), range, stages - worker.value, worker.value);
}

}  // namespace penstock
