// Looped breadth-first: GPipe with several smaller stages on each worker. Each stage takes all
// microbatches of the step before the worker's next one begins, which leaves its messages the most time.
//
// With W workers of v stages each (stage s on worker s mod W), M >= W microbatches in a step, and a
// backward as one piece:
//   bubble            (W-1)/(vM+W-1) of a step
//   activation stash  vM on every worker
//   weight versions   1; staleness 0
//
// With r replicas of every stage these are pipelines beside each other, each with M/r of the microbatches.
//
// Lamy-Poirier, "Breadth-First Pipeline Parallelism", MLSys 2023, arXiv 2211.05953.
#include "schedule/catalog/schedules.h"

namespace penstock {

Program LoopedBreadthFirst(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const std::vector<StageId> stages = options.topology.StagesOf(worker);
  const int64_t microbatches = options.microbatches_per_step;
  Program program{.repeats = range.count / microbatches, .shift = microbatches};
  for (const StageId stage : stages) {
    for (int64_t m = 0; m < microbatches; ++m) Forward(program.period, stage, range.first + m);
  }
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    for (int64_t m = 0; m < microbatches; ++m) Backward(program.period, *stage, range.first + m);
  }
  for (const StageId stage : stages) Update(program.period, stage);
  return program;
}

}  // namespace penstock
