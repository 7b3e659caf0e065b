#include "job/run/stage_options.h"

#include <algorithm>
#include <cmath>

namespace penstock {

OptimizerConfig OptimizerOfStage(const ResolvedJob& job, const StageLateness& lateness,
                                 int64_t stages) {
  constexpr double kMomentumMax = 0.99;
  OptimizerConfig config = job.optimizer;
  if (const std::optional<double>& last = job.staleness.stage_momentum) {
    SetMomentum(config, *last + static_cast<double>(lateness.staleness) * (kMomentumMax - *last) /
                                    static_cast<double>(stages));
  }
  return config;
}

HistoryOptions HistoryOfStage(const ResolvedJob& job, const StageLateness& lateness) {
  const Weights& weights = job.weights_read();
  HistoryOptions history = {.momentum_average = weights.moves,
                            .last_update = job.staleness.error_feedback,
                            .mean_square = job.staleness.adaptive_compensation,
                            .mean_square_decay = job.staleness.mean_square_decay};
  if (weights.averages_motion) {
    history.average_decay =
        std::pow(job.staleness.momentum_average_decay,
                 1.0 / static_cast<double>(std::max<int64_t>(lateness.drift, 1)));
  }
  return history;
}

StageOptions StageOptionsOf(const RunLayout& run, StageId id, const StageLateness& lateness) {
  const ResolvedJob& job = run.job;
  const Topology& topology = run.topology();
  const StageCounts& counts = run.counts[id.value];
  StageOptions options = {
      .layers = run.layers[id.value],
      .samples = job.microbatch_samples,
      .step_samples = job.batch,
      .precision = job.precision,
      .rounding = job.rounding,
      .stash = job.stash,
      .recomputes = topology[id].recomputes,
      .updates = topology[id].updates,
      .cuda_graphs = job.cuda_graphs,
      .optimizer = OptimizerOfStage(job, lateness, topology.parts()),
      .history = HistoryOfStage(job, lateness),
      .keeps_average = job.average_decay.has_value(),
      .evaluates_average = job.validates_average,
      .seed = job.seed,
      .versions_max = counts.versions_peak,
      .microbatches_in_flight_max = std::max<int64_t>(1, counts.activations_peak)};
  if (topology.form != Topology::Form::kThereAndBack) return options;
  // For all stages of this worker with these layers, and one more: a forward's that is about to be sent.
  options.recomputes = topology[id].twin.value >= 0;
  options.microbatches_in_flight_max = 1;
  for (const StageId other : topology.StagesOf(topology.worker(id))) {
    if (topology[other].holder != topology[id].holder) continue;
    options.updates |= topology[other].updates;
    options.versions_max = std::max(options.versions_max, run.counts[other.value].versions_peak);
    options.microbatches_in_flight_max += run.counts[other.value].activations_peak;
  }
  options.drops_gradients = topology.streams_weights;
  options.borrows_weights = topology[id].source.value >= 0;
  options.stores_state = topology.Loads(id);
  return options;
}

}  // namespace penstock
