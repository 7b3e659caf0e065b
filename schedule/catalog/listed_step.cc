// The step of a schedule file, repeated. Every stage that updates does so at its end; there and back, parts are then copied
// to the other workers that pass them. Where weights are in files, a part is updated where the file says, so that its
// gradients can go before the next part's come, unless updates wait for the gradients of all.
#include <set>

#include "schedule/catalog/schedules.h"

namespace penstock {

Program ListedStep(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const Schedule& listed = *options.listed;
  const Topology& topology = options.topology;
  const bool keeps_updates =
      topology.weights_in_file && !options.global_norm && topology.groups.empty();
  std::set<StageId> updated;
  Program program{.repeats = range.count / listed.range.count, .shift = listed.range.count};
  for (Action action : Expand(listed.programs[worker.value])) {
    if (keeps_updates && action.kind == ActionKind::kUpdate) {
      updated.insert(action.stage());
      program.period.push_back(action);
    }
    if (!HasMicrobatch(action.kind)) continue;
    action.microbatch += range.first - listed.range.first;
    program.period.push_back(action);
  }
  UpdateAtEnd(program.period, topology, worker, updated);
  return program;
}

}  // namespace penstock
