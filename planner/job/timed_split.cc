#include "planner/job/timed_split.h"

#include <algorithm>
#include <limits>

#include "base/status.h"
#include "job/profile/device_times.h"
#include "job/run/ties.h"
#include "planner/cost/run_costs.h"
#include "planner/cost/run_memory.h"
#include "planner/graph/partition.h"
#include "schedule/sent_bytes.h"
#include "schedule/simulate.h"

namespace penstock {
namespace {

double StepOf(const ResolvedJob& job, const SimulationResult& result) {
  return result.steady_state_period_s * static_cast<double>(job.microbatches);
}

absl::StatusOr<SimulationResult> Simulated(const ResolvedJob& job, const Topology& topology,
                                           const StepsToSimulate& steps,
                                           absl::Span<const LayerRange> layers,
                                           const v1::DeviceTimes& times) {
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationCosts costs,
                            RunCostsOf(times, job, topology, LayersOfStages(topology, layers)));
  return Simulate(steps.schedule, costs);
}

double SpeedOf(const v1::DeviceTimes& times, WorkerId worker) {
  return times.speeds().empty() ? 1.0 : times.speeds(worker.value);
}

}  // namespace

absl::StatusOr<std::vector<LayerRange>> SplitByTimes(const ResolvedJob& job,
                                                     const Topology& topology, int32_t stages,
                                                     const v1::DeviceTimes& times) {
  std::vector<LayerRange> single(job.model.size());
  for (int layer = 0; layer < job.model.size(); ++layer) single[layer] = {layer, 1};
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StageCosts> of_layers,
                            StageCostsOf(times, job.model, single));
  std::vector<double> costs;
  costs.reserve(of_layers.size());
  for (const StageCosts& layer : of_layers) {
    costs.push_back(layer.forward_s + layer.backward_input_s + layer.backward_weight_s +
                    (job.recompute.all ? layer.forward_s : 0.0));
  }
  // A part of the model is as fast as the slowest that holds it, times those that take turns.
  const std::vector<int32_t> replicas = job.ReplicasOfStages(stages);
  std::vector<double> speeds(stages, std::numeric_limits<double>::infinity());
  for (int32_t id = 0; id < topology.stages(); ++id) {
    double& speed = speeds[topology[StageId(id)].part];
    speed = std::min(speed, SpeedOf(times, topology.worker(StageId(id))));
  }
  for (int32_t stage = 0; stage < stages; ++stage) speeds[stage] *= replicas[stage];
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int> first,
                            PartitionChain(costs, speeds, PlacesToCut(job)));
  std::vector<LayerRange> layers;
  for (int32_t stage = 0; stage < stages; ++stage) {
    const int end = stage + 1 < stages ? first[stage + 1] : job.model.size();
    layers.push_back({first[stage], end - first[stage]});
  }
  return layers;
}

absl::StatusOr<StepsToSimulate> StepsToSimulateOf(const ResolvedJob& job,
                                                  const ScheduleOptions& options, int32_t stages) {
  constexpr int64_t kStepsMin = 8;
  StepsToSimulate steps;
  steps.steps = std::max(kStepsMin, (4 * stages + job.microbatches - 1) / job.microbatches + 2);
  const int64_t from = job.synchronous_steps;
  PENSTOCK_ASSIGN_OR_RETURN(steps.schedule,
                            ScheduleOfSteps(job, options, from, from + steps.steps));
  return steps;
}

absl::StatusOr<SimulatedStep> SimulateStep(const ResolvedJob& job, const ScheduleOptions& options,
                                           const StepsToSimulate& steps,
                                           absl::Span<const LayerRange> layers,
                                           const v1::DeviceTimes& times) {
  const Topology& topology = options.topology;
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult result,
                            Simulated(job, topology, steps, layers, times));
  SimulatedStep step = {
      .step_s = StepOf(job, result),
      .busy_s = std::vector<double>(topology.workers),
      .sent_bytes =
          SentBytesOf(steps.schedule, TrafficOf(job, topology, LayersOfStages(topology, layers)))};
  const auto count = static_cast<double>(steps.steps);
  for (double& bytes : step.sent_bytes) bytes /= count;
  double busy_s = 0;
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const double stage_s = result.stage_busy_s[id] / count;
    step.busy_s[topology.worker(StageId(id)).value] += stage_s;
    busy_s += stage_s;
  }
  const double worker_s = step.step_s * static_cast<double>(topology.workers);
  step.bubble_ratio = worker_s > 0 ? std::max(0.0, 1 - busy_s / worker_s) : 0;
  return step;
}

absl::StatusOr<double> StepSeconds(const ResolvedJob& job, const ScheduleOptions& options,
                                   const StepsToSimulate& steps,
                                   absl::Span<const LayerRange> layers,
                                   const v1::DeviceTimes& times) {
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult result,
                            Simulated(job, options.topology, steps, layers, times));
  return StepOf(job, result);
}

}  // namespace penstock
