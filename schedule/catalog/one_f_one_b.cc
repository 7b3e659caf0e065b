// 1F1B: after a warm-up, one forward and one backward in turn; the update after the last backward
// of the step. The same bubble as GPipe, with a stash that depends on the depth and not on M.
//
// With S stages, M microbatches in a step, stage s counted from 0, and a backward as one piece:
//   bubble            (S-1)/(M+S-1) of a step
//   activation stash  min(M, S-s) on stage s
//   weight versions   1; staleness 0
//
// Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021, arXiv 2006.09503
// (there "PipeDream-Flush").
#include <algorithm>

#include "schedule/catalog/schedules.h"

namespace penstock {

Program OneFOneB(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const StageId stage = StageOf(worker);
  const int64_t microbatches = options.microbatches_per_step;
  const int64_t warm_up =
      std::min<int64_t>(microbatches, options.topology.stages() - 1 - stage.value);
  Program program{.repeats = range.count / microbatches, .shift = microbatches};
  for (int64_t m = 0; m < warm_up; ++m) Forward(program.period, stage, range.first + m);
  for (int64_t m = 0; m < microbatches; ++m) {
    if (m + warm_up < microbatches) Forward(program.period, stage, range.first + m + warm_up);
    Backward(program.period, stage, range.first + m);
  }
  Step(program.period, stage);
  return program;
}

}  // namespace penstock
