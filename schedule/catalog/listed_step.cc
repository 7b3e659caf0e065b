// The step of a schedule file, repeated. Every stage that updates does so at its end; there and back, parts are then copied
// to the other workers that pass them.
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
  UpdateAtEnd(options.topology, worker, program.period);
  return program;
}

}  // namespace penstock
