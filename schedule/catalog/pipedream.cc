// PipeDream: 1F1B that never drains. A stage updates after every backward; backward reads the
// weights that its forward read, which are stashed until then (weight policy kStash). No bubble, at
// the price of staleness.
//
// The order is static (S-1-s warm-up forwards, then forward and backward in turn), so the version
// that each microbatch reads does not depend on timing.
//
// With S stages, N microbatches between two cuts, stage s counted from 0, F and whole backward 1
// each:
//   length            2N + 2(S-1)
//   activation stash  min(N, S-s) on stage s
//   weight versions   S-s on stage s, if N >= 2(S-1-s)
//   version read      max(0, k - (S-1-s)) by forward and backward of microbatch k
//   staleness         S-1-s, once the pipeline is full
//   block delay       at most floor(S^2 - S/2), mean (S^2-1)/2 (block_delay.h)
//
// Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019.
#include <algorithm>

#include "schedule/catalog/schedules.h"

namespace penstock {

Program PipeDream(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const StageId stage = StageOf(worker);
  const int64_t warm_up =
      std::min<int64_t>(range.count, options.topology.stages() - 1 - stage.value);
  Program program{.repeats = range.count - warm_up, .shift = 1};
  for (int64_t m = 0; m < warm_up; ++m) Forward(program.prologue, stage, range.first + m);

  Forward(program.period, stage, range.first + warm_up);
  Backward(program.period, stage, range.first);
  Step(program.period, stage);

  for (int64_t m = range.end() - warm_up; m < range.end(); ++m) {
    Backward(program.epilogue, stage, m);
    Step(program.epilogue, stage);
  }
  return program;
}

}  // namespace penstock
