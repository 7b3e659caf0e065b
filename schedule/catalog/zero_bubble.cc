#include "schedule/catalog/zero_bubble.h"

#include <algorithm>

namespace penstock {

Program DelayedWeights(const ScheduleOptions& options, StageId stage, MicrobatchRange range,
                       int64_t warm_up, int64_t delay) {
  const int64_t microbatches = options.microbatches_per_step;
  const StageWiring& wiring = options.topology[stage];
  const int64_t turns = microbatches / wiring.turns;  // microbatches of this stage in a step
  const auto microbatch = [&](int64_t turn) {
    return range.first + turn * wiring.turns + wiring.replica;
  };
  Program program{.repeats = range.count / microbatches, .shift = microbatches};
  ActionList& list = program.period;
  int64_t forwards = 0;
  int64_t weights = 0;
  while (forwards < std::min(warm_up, turns)) Forward(list, stage, microbatch(forwards++));
  for (int64_t turn = 0; turn < turns; ++turn) {
    BackwardInput(list, stage, microbatch(turn));
    const bool drains = forwards == turns;
    if (drains || turn >= delay) BackwardWeight(list, stage, microbatch(weights++));
    if (!drains) Forward(list, stage, microbatch(forwards++));
  }
  while (weights < turns) BackwardWeight(list, stage, microbatch(weights++));
  Update(list, stage);
  return program;
}

}  // namespace penstock
