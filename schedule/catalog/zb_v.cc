// ZB-V: zero bubble on a V pipeline. The worker that holds the loss also holds the input, so the first
// gradient is back sooner; the stash is that of 1F1B and the same on all workers.
//
// With W workers of two stages, M >= 2W-1 microbatches in a step, and equal times of F, I and W:
//   bubble            none between the first action of a worker in a run and its last
//   activation stash  2W-s on stage s counted from 0 (between F and W), each of half the size of 1F1B's
//   weight versions   1; staleness 0
//
// With r replicas of every stage these are pipelines beside each other, each with M/r of the microbatches.
//
// Qi, Wan, Huang, Lin, "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv 2401.10241, and "Pipeline
// Parallelism with Controllable Memory", NeurIPS 2024, arXiv 2405.15362.
#include <algorithm>

#include "schedule/catalog/v_order.h"

namespace penstock {

Program ZeroBubbleV(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  constexpr auto kDown = VOrder::kDown;
  constexpr auto kUp = VOrder::kUp;
  const int64_t before = worker.value;
  const int64_t here_and_after = options.topology.workers - before;
  // The order is made for steps that fill the pipeline.
  const int64_t microbatches =
      std::max<int64_t>(options.microbatches_per_step, 2 * options.topology.workers - 1);
  VOrder order(options, worker, range);
  for (int64_t i = 0; i < 2 * here_and_after - 1; ++i) order.F(kDown);
  for (int64_t i = 0; i < before; ++i) {
    order.F(kUp);
    order.F(kDown);
  }
  for (int64_t i = 0; i < here_and_after; ++i) {
    order.F(kUp);
    order.B(kUp);
  }
  while (order.forwards(kUp) < order.forwards(kDown) || order.forwards(kDown) < microbatches) {
    if (order.forwards(kDown) < microbatches) order.F(kDown);
    order.B(kDown);
    order.F(kUp);
    order.B(kUp);
  }
  for (int64_t i = 0; i < before; ++i) {
    order.I(kDown);
    order.I(kUp);
  }
  for (int64_t i = 0; i < here_and_after; ++i) {
    order.I(kDown);
    order.W(kDown);
  }
  return order.Finish();
}

}  // namespace penstock
