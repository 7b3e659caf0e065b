#include "schedule/catalog/zero_bubble.h"

#include <algorithm>

namespace penstock {

Program DelayedWeights(const ScheduleOptions& options, StageId stage, MicrobatchRange range,
                       int64_t warm_up, int64_t delay) {
  const int64_t microbatches = options.microbatches_per_step;
  Program program{.repeats = range.count / microbatches, .shift = microbatches};
  ActionList& list = program.period;
  int64_t forwards = 0;
  int64_t weights = 0;
  while (forwards < std::min(warm_up, microbatches)) Forward(list, stage, range.first + forwards++);
  for (int64_t m = 0; m < microbatches; ++m) {
    BackwardInput(list, stage, range.first + m);
    const bool drains = forwards == microbatches;
    if (drains || m >= delay) BackwardWeight(list, stage, range.first + weights++);
    if (!drains) Forward(list, stage, range.first + forwards++);
  }
  while (weights < microbatches) BackwardWeight(list, stage, range.first + weights++);
  Update(list, stage);
  return program;
}

}  // namespace penstock
