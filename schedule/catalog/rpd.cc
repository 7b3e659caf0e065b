// Randomized pipeline descent (RPD): the algorithm that theory stands on, as a training method.
// PipeDream's order, 1F1B that never drains; but which weights a microbatch reads and which stage
// it updates is sampled (block_draws.h, weight policy kDrawn).
//
// Microbatch k is update k of the model. Its forward reads on every stage a version between the
// newest that it can find, k - d with d stages after this one, and k - delta; its backward reads
// the same; then one stage is sampled, all equally likely, and only that stage's UPDATE changes its
// weights. The other stages compute a gradient too, which they drop: they must send that of their
// input on anyway, and the methods are compared at equal cost.
//
// Differences to the paper's algorithm 1: microbatches come in the order of the job and not with
// replacement, delays begin at d and not at 0, and like everything else they start over at a cut.
// The rate is the paper's, without a factor S for the stages that stand still.
//
// With S stages, N microbatches between two cuts, stage s counted from 0, F and whole backward 1 each:
//   length            2N + 2(S-1), as pipedream
//   activation stash  min(N, S-s) on stage s
//   version read      k - j, j uniform in [min(S-1-s, k), min(delta, k)], by forward and backward of microbatch k
//   staleness         j: versions count the updates of the whole model, so this is the block delay of the theorem
//   weights kept      those of the last delta + 1 versions that differ, 1 + delta / S on average, delta + 1 at most
//   updates           each microbatch moves one stage, N / S of them a given one on average
//
// By default delta is what PipeDream's own delay amounts to, floor(S^2 - S/2).
//
// Ilin and Richtarik, "Demystifying Pipeline Parallelism: First Theory for PipeDream", 2026, arXiv 2606.03498.
#include "schedule/catalog/continuous.h"

namespace penstock {

Program RandomizedPipeDream(const ScheduleOptions& options, WorkerId worker,
                            MicrobatchRange range) {
  return ContinuousOneFOneB(options, StageOf(worker), range, 1);
}

}  // namespace penstock
