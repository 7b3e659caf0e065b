// Interleaved 1F1B: 1F1B with several smaller stages on each worker, so that filling and draining the
// pipeline costs less; more messages and a larger stash.
//
// With W workers of v stages each (stage s on worker s mod W), M microbatches in a step (a multiple of
// W), worker w counted from 0, and a backward as one piece:
//   bubble            (W-1)/(vM+W-1) of a step
//   activation stash  min(vM, (v-1)W + 2(W-1-w) + 1) on worker w
//   weight versions   1; staleness 0
//
// With r replicas of every stage these are pipelines beside each other, each with M/r of the microbatches.
//
// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
// SC 2021, arXiv 2104.04473.
#include <algorithm>

#include "schedule/catalog/schedules.h"

namespace penstock {

Program InterleavedOneFOneB(const ScheduleOptions& options, WorkerId worker,
                            MicrobatchRange range) {
  const int32_t workers = options.topology.workers;
  const std::vector<StageId> stages = options.topology.StagesOf(worker);
  const auto parts = static_cast<int64_t>(stages.size());
  const int64_t microbatches = options.microbatches_per_step;
  // The k-th forward (or backward) of a worker: its stages take turns, `workers` microbatches each.
  const auto part = [&](int64_t k) { return k / workers % parts; };
  const auto microbatch = [&](int64_t k) {
    return range.first + k / (workers * parts) * workers + k % workers;
  };
  const int64_t units = microbatches * parts;
  const int64_t warm_up =
      std::min<int64_t>(units, 2 * (workers - worker.value - 1) + (parts - 1) * workers);
  Program program{.repeats = range.count / microbatches, .shift = microbatches};
  for (int64_t k = 0; k < units + warm_up; ++k) {
    if (k < units) Forward(program.period, stages[part(k)], microbatch(k));
    const int64_t done = k - warm_up;
    if (done >= 0) {
      Backward(program.period, stages[parts - 1 - part(done)], microbatch(done));
    }
  }
  for (const StageId stage : stages) Update(program.period, stage);
  return program;
}

}  // namespace penstock
