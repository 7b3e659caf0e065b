// TimedSplit: where to cut a job's layers, and what a step of it then takes, by the times of a device's layers.
//
// Plans (planner/job/candidate_judge.h) and jobs that are replanned while they run (planner/job/replan.h) share this
// rule.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "penstock/v1/device_times.pb.h"

namespace penstock {

// The layers of each of `stages` stages of the model, so that the slowest stage is as fast as can be on workers of
// `times.speeds` (none: all alike). `topology`: the job's for `stages` stages.
// Errors: InvalidArgument: those of StageCostsOf (`times` have to be by layer) and PartitionChain.
absl::StatusOr<std::vector<LayerRange>> SplitByTimes(const ResolvedJob& job,
                                                     const Topology& topology, int32_t stages,
                                                     const v1::DeviceTimes& times);

// It holds enough of a job's steps for a simulation to come to its steady state. They serve any split and any times.
struct StepsToSimulate {
  Schedule schedule;
  int64_t steps = 0;
};
// Errors: those of ScheduleOfSteps.
absl::StatusOr<StepsToSimulate> StepsToSimulateOf(const ResolvedJob& job,
                                                  const ScheduleOptions& options, int32_t stages);

struct SimulatedStep {
  double step_s = 0;               // of a step in a long run
  double bubble_ratio = 0;         // in it, the mean over workers
  std::vector<double> busy_s;      // in a step, by worker
  std::vector<double> sent_bytes;  // in a step, by worker
};

// `layers`: by stage of the model. Errors: those of RunCostsOf and Simulate.
absl::StatusOr<SimulatedStep> SimulateStep(const ResolvedJob& job, const ScheduleOptions& options,
                                           const StepsToSimulate& steps,
                                           absl::Span<const LayerRange> layers,
                                           const v1::DeviceTimes& times);
// Returns only the time of a step, for searches.
absl::StatusOr<double> StepSeconds(const ResolvedJob& job, const ScheduleOptions& options,
                                   const StepsToSimulate& steps,
                                   absl::Span<const LayerRange> layers,
                                   const v1::DeviceTimes& times);

}  // namespace penstock
