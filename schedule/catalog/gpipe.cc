// GPipe: all forwards of a step, then all its backwards, then the update.
//
// With S stages, M microbatches in a step, and a backward as one piece:
//   bubble            (S-1)/(M+S-1) of a step
//   activation stash  M on every stage
//   weight versions   1; staleness 0
// With r replicas of a stage each does every r-th microbatch, of which it stashes M/r.
//
// Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism",
// NeurIPS 2019, arXiv 1811.06965.
#include "schedule/catalog/schedules.h"

namespace penstock {

Program Gpipe(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const StageId stage = StageOf(worker);
  const int64_t microbatches = options.microbatches_per_step;
  const int64_t stride = options.topology[stage].turns;
  const int64_t first = options.topology[stage].replica;
  Program program{.repeats = range.count / microbatches, .shift = microbatches};
  for (int64_t m = first; m < microbatches; m += stride) {
    Forward(program.period, stage, range.first + m);
  }
  for (int64_t m = first; m < microbatches; m += stride) {
    Backward(program.period, stage, range.first + m);
  }
  Update(program.period, stage);
  return program;
}

}  // namespace penstock
