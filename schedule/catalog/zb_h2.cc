// ZB-H2: ZB-H1 with more forwards before the first backward, so that where F, I and W take the same time
// no worker waits between its first action of a run and its last; up to twice the stash of 1F1B.
//
// With S stages, M >= 2S-1 microbatches in a step, times F, I and W of the three passes:
//   bubble            (S-1)(F+I-2W) of a step's time on every worker, so none if they are equal
//   activation stash  2S-1 on every stage (between F and W)
//   weight versions   1; staleness 0
//
// The paper lets stages update without waiting for a norm over all of them; with clipping by the global
// norm (a NORM before the update) the workers wait for the last one in every step.
//
// With replicas as ZB-H1: w(s) of 1F1B stands in the place of S-1-s.
//
// Qi, Wan, Huang, Lin, "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv 2401.10241.
#include <vector>

#include "schedule/catalog/zero_bubble.h"
#include "schedule/warm_up.h"

namespace penstock {

Program ZeroBubbleH2(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const StageId stage = StageOf(worker);
  const std::vector<int64_t> after =
      WarmUpForwards(ReplicasOf(options.topology), ReplicasMeet::kAtSteps);
  const int32_t place = options.topology[stage].place;
  return DelayedWeights(options, stage, range, 2 * after[place] + 1, 2 * (after[0] - after[place]));
}

}  // namespace penstock
