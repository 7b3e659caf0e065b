// ZB-H1: 1F1B with the backward in two pieces. Gradients of inputs go on at once, gradients of weights
// fill the drain, and no stage stashes more than 1F1B's first one.
//
// With S stages, M >= S microbatches in a step, times F, I and W of the three passes:
//   bubble            (S-1)(F+I-W) of a step's time on every worker, if F, I and W are equal
//   activation stash  S on every stage (between F and W)
//   weight versions   1; staleness 0
//
// With r(s) replicas of stage s each has every r(s)-th microbatch, and the warm-up forwards w(s) of 1F1B (warm_up.cc)
// stand in the place of S-1-s: a replica keeps max(w(0), w(s))+1 microbatches. With as many replicas everywhere they are
// pipelines beside each other. With unlike numbers a step may be longer than 1F1B's: by 8 % with 1, 2, 4 and 8 replicas
// of balanced places and 320 microbatches (ZB-H2: by 15 %).
//
// Qi, Wan, Huang, Lin, "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv 2401.10241.
#include <vector>

#include "schedule/catalog/zero_bubble.h"
#include "schedule/warm_up.h"

namespace penstock {

Program ZeroBubbleH1(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const StageId stage = StageOf(worker);
  const std::vector<int64_t> after =
      WarmUpForwards(ReplicasOf(options.topology), ReplicasMeet::kAtSteps);
  const int32_t place = options.topology[stage].place;
  return DelayedWeights(options, stage, range, after[place] + 1, after[0] - after[place]);
}

}  // namespace penstock
