#include "schedule/catalog/continuous.h"

#include <algorithm>

namespace penstock {

Program ContinuousOneFOneB(const ScheduleOptions& options, StageId stage, MicrobatchRange range,
                           int64_t update_interval) {
  const int64_t warm_up =
      std::min<int64_t>(range.count, options.topology.stages() - 1 - stage.value);
  // Backwards that have a forward beside them, in whole periods.
  const int64_t repeats = (range.count - warm_up) / update_interval;
  Program program{.repeats = repeats, .shift = update_interval};
  for (int64_t m = 0; m < warm_up; ++m) Forward(program.prologue, stage, range.first + m);

  const auto backward = [&](ActionList& list, int64_t m) {
    if (m + warm_up < range.count) Forward(list, stage, range.first + m + warm_up);
    Backward(list, stage, range.first + m);
    if ((m + 1) % update_interval == 0) Update(list, stage);
  };
  for (int64_t m = 0; m < update_interval && repeats > 0; ++m) backward(program.period, m);
  for (int64_t m = repeats * update_interval; m < range.count; ++m) backward(program.epilogue, m);
  return program;
}

}  // namespace penstock
