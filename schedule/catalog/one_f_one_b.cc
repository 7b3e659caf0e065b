// 1F1B: after a warm-up, one forward and one backward in turn; the update after the last backward
// of the step. The same bubble as GPipe, with a stash that depends on the depth and not on M.
//
// With S stages, M microbatches in a step, stage s counted from 0, and a backward as one piece:
//   bubble            (S-1)/(M+S-1) of a step
//   activation stash  min(M, S-s) on stage s
//   weight versions   1; staleness 0
// With r(s) replicas of stage s each does every r(s)-th microbatch, after w(s) warm-up forwards (warm_up.cc)
// in the place of S-1-s, and stashes min(M/r(s), w(s)+1).
//
// Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021, arXiv 2006.09503
// (there "PipeDream-Flush").
#include <algorithm>

#include "schedule/catalog/schedules.h"
#include "schedule/warm_up.h"

namespace penstock {

Program OneFOneB(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const StageId stage = StageOf(worker);
  const int64_t microbatches = options.microbatches_per_step;
  const int64_t stride = options.topology[stage].turns;
  const int64_t turns = microbatches / stride;  // microbatches of this stage in a step
  const int64_t warm_up =
      std::min(turns, WarmUpForwardsOf(options.topology, stage, ReplicasMeet::kAtSteps));
  const auto microbatch = [&](int64_t turn) {
    return range.first + turn * stride + options.topology[stage].replica;
  };
  Program program{.repeats = range.count / microbatches, .shift = microbatches};
  for (int64_t turn = 0; turn < warm_up; ++turn) Forward(program.period, stage, microbatch(turn));
  for (int64_t turn = 0; turn < turns; ++turn) {
    if (turn + warm_up < turns) Forward(program.period, stage, microbatch(turn + warm_up));
    Backward(program.period, stage, microbatch(turn));
  }
  Update(program.period, stage);
  return program;
}

}  // namespace penstock
