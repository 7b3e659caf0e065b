// The step of a schedule file, repeated; every stage updates at its end.
#include "schedule/catalog/schedules.h"

namespace penstock {

Program ListedStep(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const Schedule& listed = *options.listed;
  Program program{.repeats = range.count / listed.range.count, .shift = listed.range.count};
  for (Action action : Expand(listed.programs[worker.value])) {
    if (!HasMicrobatch(action.kind)) continue;
    action.microbatch += range.first - listed.range.first;
    program.period.push_back(action);
  }
  for (const StageId stage : options.topology.StagesOf(worker)) Update(program.period, stage);
  return program;
}

}  // namespace penstock
