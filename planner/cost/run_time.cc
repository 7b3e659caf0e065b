#include "planner/cost/run_time.h"

#include <map>

#include "base/status.h"
#include "job/run/run_schedule.h"

namespace penstock {

absl::StatusOr<RunTime> SimulateRun(const ResolvedJob& job, const ScheduleOptions& options,
                                    int64_t first_step, absl::Span<const Cut> cuts,
                                    const SimulationCosts& costs) {
  RunTime run;
  run.stages.resize(options.topology.stages());
  std::map<RangeKey, SimulationResult> ranges;
  int64_t from_step = first_step;
  double seconds = 0.0;
  double idle_seconds = 0.0;
  for (const Cut& cut : cuts) {
    const RangeKey key = KeyOfSteps(job, from_step, cut.step);
    auto found = ranges.find(key);
    if (found == ranges.end()) {
      PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule,
                                ScheduleOfSteps(job, options, from_step, cut.step));
      PENSTOCK_ASSIGN_OR_RETURN(SimulationResult result, Simulate(schedule, costs));
      found = ranges.emplace(key, std::move(result)).first;
    }
    const SimulationResult& result = found->second;
    seconds += result.makespan_s;
    idle_seconds += result.makespan_s * result.bubble_ratio;
    for (size_t stage = 0; stage < run.stages.size(); ++stage) {
      AddRange(result.stages[stage], run.stages[stage]);
    }
    run.cut_s.push_back(seconds);
    from_step = cut.step;
  }
  run.bubble_ratio = seconds > 0.0 ? idle_seconds / seconds : 0.0;
  return run;
}

}  // namespace penstock
