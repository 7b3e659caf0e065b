// Makes the options of each stage of a run (compute/stage.h), the same for the worker that makes it and for code
// that only asks for its costs (planner/cost/run_memory.h).
//
// Plain functions.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "compute/stage.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "schedule/machine.h"

namespace penstock {

// A run as far as it is known before it starts; it owns nothing.
struct RunLayout {
  const ResolvedJob& job;
  const ScheduleOptions& schedule;      // its topology is that of the run
  absl::Span<const LayerRange> layers;  // by stage
  int64_t first_step = 0;
  absl::Span<const Cut> cuts;            // CutsOf(spec, first_step, ...)
  absl::Span<const StageCounts> counts;  // by stage: CountsOfRun

  const Topology& topology() const { return schedule.topology; }
};

// The optimizer of one of `stages` stages: with training.staleness.stage_momentum m its momentum is
// m + staleness (0.99 - m) / stages (Ajanthan et al., ICML 2025, arXiv 2505.01099, without stashing).
OptimizerConfig OptimizerOfStage(const ResolvedJob& job, const StageLateness& lateness,
                                 int64_t stages);
// Returns what a stage must remember of its updates for the job's weights and rules. PipeMare's
// average keeps D^(1 / drift) at each update.
HistoryOptions HistoryOfStage(const ResolvedJob& job, const StageLateness& lateness);

// Returns the options of stage `id` on its worker. There and back a worker has one Stage for all its stages of
// one part of the model, with the options of the first of them.
StageOptions StageOptionsOf(const RunLayout& run, StageId id, const StageLateness& lateness);

}  // namespace penstock
