#include "studies/experiments/parallel_training.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/status.h"
#include "planner/graph/cuts.h"
#include "schedule/catalog/catalog.h"
#include "schedule/sent_bytes.h"
#include "schedule/simulate.h"

namespace penstock {
namespace {

// Whole cycles or steps, enough of them for the pipeline to fill and to repeat itself.
constexpr int64_t kCopiesMin = 16;
constexpr int64_t kMinibatchesMin = 256;

double AllReduceBytes(double parameter_bytes, int workers) {
  return 2.0 * (workers - 1) / workers * parameter_bytes;
}

std::vector<StageCosts> CostsOf(const LayerGraph& graph, absl::Span<const PlannedStage> stages,
                                const Topology& topology) {
  std::vector<StageCosts> costs;
  for (const StageWiring& row : topology.table) {
    // A profile has backwards whole, and no updates.
    StageCosts cost = {.forward_s = 0, .backward_input_s = 0, .backward_weight_s = 0};
    for (const int node : stages[row.place].nodes) {
      cost.forward_s += graph.nodes[node].forward_s;
      cost.backward_input_s += graph.nodes[node].backward_s;
    }
    costs.push_back(cost);
  }
  return costs;
}

Traffic TrafficOfPlan(absl::Span<const PlannedStage> stages, const Topology& topology) {
  Traffic traffic;
  for (const StageWiring& row : topology.table) {
    const PlannedStage& stage = stages[row.place];
    traffic.stages.push_back({.output = stage.output_bytes, .grad_input = stage.input_bytes});
  }
  for (const ReduceGroup& group : topology.groups) {
    const PlannedStage& stage = stages[topology[group.stages.front()].place];
    const double part = stage.parameter_bytes / stage.replicas;
    traffic.groups.push_back({.buckets = {{.parts = std::vector<double>(stage.replicas, part)}}});
  }
  return traffic;
}

absl::StatusOr<Topology> TopologyOf(const Method& method, absl::Span<const PlannedStage> stages) {
  std::vector<int32_t> replicas;
  for (const PlannedStage& stage : stages) replicas.push_back(stage.replicas);
  if (*std::max_element(replicas.begin(), replicas.end()) > 1) {
    return PlaceReplicas(method, replicas);
  }
  return StraightPipeline(static_cast<int32_t>(stages.size()));
}

}  // namespace

absl::StatusOr<MinibatchCost> SimulatePipeline(const LayerGraph& graph, const PipelineRun& run) {
  PENSTOCK_ASSIGN_OR_RETURN(const Method* method, FindMethod(run.method));
  ScheduleOptions options;
  PENSTOCK_ASSIGN_OR_RETURN(options.topology, TopologyOf(*method, run.stages));
  const int64_t step = std::lcm(options.topology.cycle, run.minibatches_per_step);
  options.microbatches_per_step = step;
  const int64_t copies = std::max(kCopiesMin, kMinibatchesMin / step);
  PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule,
                            BuildSchedule(*method, options, {.first = 0, .count = copies * step}));
  SimulationCosts costs = {
      .stages = CostsOf(graph, run.stages, options.topology),
      .worker_links = WorkerLinks{.card_bytes_per_second = run.bytes_per_second},
      .traffic = TrafficOfPlan(run.stages, options.topology)};
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult result, Simulate(schedule, costs));
  const std::vector<double> sent = SentBytesOf(schedule, costs.traffic);
  return MinibatchCost{.seconds = result.steady_state_period_s,
                       .bytes = std::accumulate(sent.begin(), sent.end(), 0.0) /
                                static_cast<double>(schedule.range.count)};
}

PlannedStage ReplicatedModel(const LayerGraph& graph, int workers) {
  PlannedStage stage = {.replicas = workers, .workers = workers};
  stage.nodes = SortGraph(graph).node_of;
  stage.work_s = TotalWorkS(graph);
  stage.parameter_bytes = TotalParameterBytes(graph);
  return stage;
}

MinibatchCost OverlappedDataParallelism(const LayerGraph& graph, int workers,
                                        double bytes_per_second) {
  const std::vector<int> order = SortGraph(graph).node_of;
  double computed_s = 0;  // since when the passes up to here are done
  for (const LayerNode& node : graph.nodes) computed_s += node.forward_s;
  double reduced_s = 0;  // since when the gradients up to here are added up
  for (auto node = order.rbegin(); node != order.rend(); ++node) {
    const LayerNode& layer = graph.nodes[*node];
    computed_s += layer.backward_s;
    const double bytes = AllReduceBytes(layer.parameter_bytes, workers);
    if (bytes > 0) reduced_s = std::max(reduced_s, computed_s) + bytes / bytes_per_second;
  }
  return {.seconds = std::max(computed_s, reduced_s) / workers,
          .bytes = AllReduceBytes(TotalParameterBytes(graph), workers)};
}

LayerGraph WithMinibatch(LayerGraph graph, double factor) {
  for (LayerNode& node : graph.nodes) {
    node.forward_s *= factor;
    node.backward_s *= factor;
    node.activation_bytes *= factor;
  }
  return graph;
}

}  // namespace penstock
