#include "planner/job/assign.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/run/recorded.h"
#include "job/run/run_schedule.h"
#include "job/run/ties.h"
#include "planner/graph/partition.h"
#include "schedule/verify.h"

namespace penstock {
namespace {

std::vector<double> EstimatedCosts(const ModelGraph& model) {
  std::vector<double> costs;
  for (const LayerSpec& layer : model.layers) {
    const LayerCost cost = EstimateCost(model, layer);
    costs.push_back(cost.forward_flops + cost.backward_input_flops + cost.backward_weight_flops);
  }
  return costs;
}

// Verifies the schedules of all ranges, each length once: where a range begins makes no difference.
// Returns the messages in flight that they need.
absl::StatusOr<int64_t> VerifyRun(const ResolvedJob& job, const ScheduleOptions& options,
                                  int64_t first_step, absl::Span<const Cut> cuts) {
  int64_t capacity = ChannelCapacityOf(options.topology);
  std::set<RangeKey> verified;
  int64_t from_step = first_step;
  bool validates = false;
  for (const Cut& cut : cuts) {
    RangeKey key = KeyOfSteps(job, from_step, cut.step);
    key.drawn_from = 0;  // sampling does not change what is in flight
    if (verified.insert(key).second) {
      PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule,
                                ScheduleOfSteps(job, options, from_step, cut.step));
      PENSTOCK_ASSIGN_OR_RETURN(const VerifyReport report,
                                Verify(schedule, {.counts_draws = false}));
      capacity = std::max<int64_t>(capacity, report.channel_capacity_min);
      if (job.order == Order::kRecorded) {
        // Then no order of the workers' own waits for credit for long (schedule/ready_order.h).
        for (const StageCounts& stage : report.stages) {
          capacity = std::max(capacity, InFlightMax(job, stage.activations_peak));
        }
      }
    }
    validates = validates || cut.validate;
    from_step = cut.step;
  }
  if (validates) {
    PENSTOCK_ASSIGN_OR_RETURN(
        const VerifyReport report,
        Verify(BuildEvaluation(options.topology, {.first = 0, .count = job.validation_batches})));
    capacity = std::max<int64_t>(capacity, report.channel_capacity_min);
  }
  return capacity;
}

}  // namespace

int64_t WorkersFor(const v1::JobSpec& spec, const ResolvedJob& job, int64_t free) {
  if (spec.pipeline().has_stages()) {
    const int64_t needed = job.WorkersOf(spec.pipeline().stages());
    return free >= needed ? needed : 0;
  }
  const int64_t most = job.WorkersOf(job.model.stages_max());
  if (job.listed != nullptr || job.knows_stages()) return free >= most ? most : 0;
  return job.WorkersOf(job.StagesOn(std::min(free, most)));
}

absl::StatusOr<std::vector<LayerRange>> SplitLayers(const ResolvedJob& job, int64_t stages) {
  PENSTOCK_RETURN_IF_ERROR(CheckStages(job, stages));
  std::vector<LayerRange> ranges;
  if (!job.stage_layers.empty()) {
    for (const int32_t layers : job.stage_layers) {
      ranges.push_back({ranges.empty() ? 0 : ranges.back().end(), layers});
    }
    return ranges;
  }
  const std::vector<int32_t> replicas = job.ReplicasOfStages(stages);
  const std::vector<double> speeds(replicas.begin(), replicas.end());
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int> first_layers,
                            PartitionChain(EstimatedCosts(job.model), speeds, PlacesToCut(job)));
  for (size_t stage = 0; stage < first_layers.size(); ++stage) {
    const bool last = stage + 1 == first_layers.size();
    const int end = last ? job.model.size() : first_layers[stage + 1];
    ranges.push_back({first_layers[stage], end - first_layers[stage]});
  }
  return ranges;
}

absl::StatusOr<v1::Plan> MakePlan(const v1::JobSpec& spec, const ResolvedJob& job,
                                  absl::Span<const WorkerOffer> workers, int64_t first_step,
                                  absl::Span<const int64_t> extra_cuts) {
  const auto stages = static_cast<int32_t>(job.StagesOn(static_cast<int64_t>(workers.size())));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<LayerRange> layers, SplitLayers(job, stages));
  const ScheduleOptions options = ScheduleOptionsOf(job, TopologyOf(job, stages), layers);
  const std::vector<Cut> cuts = CutsOf(spec, first_step, extra_cuts);

  PENSTOCK_RETURN_IF_ERROR(CheckOrderSize(job, options.topology, first_step, cuts));

  v1::Plan plan;
  plan.set_method(std::string(job.method->name));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t capacity, VerifyRun(job, options, first_step, cuts));
  plan.set_channel_capacity(capacity);
  PENSTOCK_ASSIGN_OR_RETURN(*plan.mutable_schedule_digest(),
                            DigestOfRun(job, options, first_step, cuts));
  if (options.topology.pipelines > 1) plan.set_pipelines(options.topology.pipelines);
  for (int32_t s = 0; s < options.topology.stages(); ++s) {
    const LayerRange& range = layers[options.topology[StageId(s)].part];
    v1::StageAssignment& stage = *plan.add_stages();
    stage.set_stage(s);
    const int32_t index = options.topology.worker(StageId(s)).value;
    stage.set_worker_index(index);
    stage.set_worker(workers[index].name);
    stage.set_address(workers[index].address);
    stage.set_incarnation(workers[index].incarnation);
    stage.set_first_layer(range.first);
    stage.set_layers(range.count);
  }
  return plan;
}

}  // namespace penstock
