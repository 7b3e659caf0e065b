#include "planner/job/update_pattern.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "planner/cost/run_memory.h"

namespace penstock {
namespace {

// Replicas of a stage may take turns over several steps.
constexpr int64_t kStepsCounted = 1000;

double ParametersOf(const ModelGraph& model, LayerRange range) {
  double parameters = 1;  // a stage without any has updates all the same
  for (int layer = range.first; layer < range.first + range.count; ++layer) {
    parameters += static_cast<double>(model.layers[layer].parameter_count());
  }
  return parameters;
}

// Returns the mean delay, in updates.
double DelayOf(const ResolvedJob& job, const StageLateness& lateness) {
  // Sampled delays are anything up to the greatest.
  if (job.draws()) return 0.5 * static_cast<double>(lateness.staleness);
  // PipeMare counts part of an update for stages whose gradients are never late.
  return lateness.staleness == 0 && lateness.drift == 0 ? 0 : lateness.rate_delay;
}

}  // namespace

bool TrainsSynchronously(const Method& method) {
  return method.synchronous && method.placement != Placement::kReplicas;
}

UpdatePattern UpdatePatternOf(const ResolvedJob& job, const Topology& topology,
                              absl::Span<const LayerRange> layers,
                              absl::Span<const StageLateness> lateness) {
  UpdatePattern pattern = {.method = std::string(job.method->name),
                           .synchronous = TrainsSynchronously(*job.method)};
  if (pattern.synchronous) return pattern;
  if (job.weights != nullptr) absl::StrAppend(&pattern.method, " on ", job.weights->name);
  const auto stages = static_cast<int64_t>(layers.size());
  const std::vector<LayerRange> of_stages = LayersOfStages(topology, layers);
  double parameters = 0;
  double delay = 0;
  for (size_t stage = 0; stage < lateness.size(); ++stage) {
    const double weight = ParametersOf(job.model, of_stages[stage]);
    parameters += weight;
    delay += weight * DelayOf(job, lateness[stage]);
  }
  pattern.delay = delay / parameters + 1 - 1.0 / job.PipelinesOf(stages);
  parameters = 0;
  double updates = 0;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const double weight = ParametersOf(job.model, layers[stage]);
    parameters += weight;
    const int64_t counted = job.UpdatesBetween(
        job.synchronous_steps, job.synchronous_steps + kStepsCounted, stages, stage);
    updates += weight * static_cast<double>(counted);
  }
  pattern.updates_per_step = updates / parameters / static_cast<double>(kStepsCounted);
  return pattern;
}

absl::StatusOr<UpdatePattern> UpdatePatternOf(const ResolvedJob& job,
                                              absl::Span<const LayerRange> layers) {
  if (job.order == Order::kRecorded) {
    return absl::FailedPreconditionError("how late gradients are in a recorded order is not known");
  }
  const ScheduleOptions options =
      ScheduleOptionsOf(job, TopologyOf(job, static_cast<int64_t>(layers.size())), layers);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StageLateness> lateness, LatenessOf(job, options));
  return UpdatePatternOf(job, options.topology, layers, lateness);
}

}  // namespace penstock
