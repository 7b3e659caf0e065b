#include "planner/dawnpiper/graph_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "planner/dawnpiper/chain_partition.h"
#include "planner/graph/limits.h"

namespace penstock {
namespace {

// Of the slowest part of the way between two workers, each way.
double BytesPerSecondBetween(const Cluster& cluster, int from, int to) {
  const int host = cluster.workers[from].host;
  const int other = cluster.workers[to].host;
  if (host == other) return cluster.hosts[host].inside_bytes_per_second;
  double slowest =
      std::min(cluster.hosts[host].nic_bytes_per_second, cluster.hosts[other].nic_bytes_per_second);
  for (const HostPath& path : cluster.paths) {
    const bool is_this =
        (path.from == host && path.to == other) || (path.from == other && path.to == host);
    if (is_this) slowest = std::min(slowest, path.bytes_per_second);
  }
  return slowest;
}

MemoryModel ModelOf(const ChainPlanRequest& request) {
  const Cluster& cluster = request.cluster;
  MemoryModel model = {.places = PlacesOf1F1B(cluster.size(), request.rule, kInfinity),
                       .choice = request.rule.may_recompute ? request.choice : TensorChoice::kNone,
                       .host_bytes_per_second = request.host_bytes_per_second};
  for (int worker = 0; worker < cluster.size(); ++worker) {
    model.places[worker].speed = cluster.workers[worker].speed;
    model.places[worker].memory_bytes = cluster.workers[worker].memory_bytes;
    if (worker == 0) continue;
    const double one_way = BytesPerSecondBetween(cluster, worker - 1, worker);
    model.link_bytes_per_second.push_back(cluster.full_duplex ? one_way : one_way / 2);
  }
  return model;
}

// The whole model on each worker, which averages gradients after a minibatch of its own.
double DataParallelS(const StageMemory& memory, const LayerGraph& graph) {
  const int workers = memory.stages();
  double one_s = 0;
  for (const StagePlace& place : memory.model().places) {
    if (memory.BytesOfAllKept(0, memory.nodes(), 1, 1) > place.memory_bytes) return kInfinity;
    one_s = std::max(one_s, memory.WorkS(0, memory.nodes()) / place.speed);
  }
  double sync_s = 0;
  for (const double bytes_per_second : memory.model().link_bytes_per_second) {
    sync_s = std::max(
        sync_s, 2.0 * (workers - 1) / workers * TotalParameterBytes(graph) / bytes_per_second);
  }
  return (one_s + sync_s) / workers;
}

absl::Status CheckRequest(const LayerGraph& graph, const ChainPlanRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckLayerGraph(graph));
  PENSTOCK_RETURN_IF_ERROR(CheckCluster(request.cluster));
  if (graph.nodes.size() > kChainNodesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the graph has ", graph.nodes.size(),
                                                   " layers; expected at most ", kChainNodesMax,
                                                   " for a plan by tensors"));
  }
  if (request.memory.size() != graph.nodes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("memory: is of ", request.memory.size(),
                                                   " layers; expected ", graph.nodes.size()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StagePlan> PlanChain(const LayerGraph& graph, const ChainPlanRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckRequest(graph, request));
  const GraphChain chain = ChainOfGraph(graph, request.memory);
  const StageMemory memory(chain.nodes, ModelOf(request));
  const bool is_dawnpiper = request.planner == ChainPlanner::kDawnPiper;
  PENSTOCK_ASSIGN_OR_RETURN(const ChainPartition partition,
                            is_dawnpiper ? PartitionByHalves(memory) : BestPartition(memory));
  MemoryModel unlimited = memory.model();
  for (StagePlace& place : unlimited.places) place.memory_bytes = kInfinity;
  PENSTOCK_ASSIGN_OR_RETURN(const ChainPartition bound,
                            BestPartition(StageMemory(chain.nodes, std::move(unlimited))));
  StagePlan plan = {.model = is_dawnpiper ? "dawnpiper" : "best-cuts",
                    .period_s = partition.period_s,
                    .workers_used = memory.stages(),
                    .lower_bound_s = bound.period_s,
                    .is_optimal = partition.period_s <= bound.period_s * (1 + 1e-9),
                    .cuts_examined = static_cast<int>(partition.stages_charged),
                    .one_worker_s = TotalWorkS(graph) / memory.model().places.front().speed,
                    .data_parallel_s = DataParallelS(memory, graph)};
  int first = 0;
  for (int place = 0; place < memory.stages(); ++place) {
    const int end = partition.ends[place];
    const StageCharge1F1B& charge = partition.charges[place];
    PlannedStage stage = {.nodes = {chain.node_of.begin() + first, chain.node_of.begin() + end},
                          .work_s = memory.WorkS(first, end),
                          .compute_s = charge.seconds,
                          .stage_s = charge.seconds,
                          .placed_on = {place},
                          .memory_bytes = charge.memory_bytes,
                          .in_flight = memory.model().places[place].in_flight,
                          .recomputes = charge.Count(TensorUse::kRecomputed) > 0,
                          .recomputed_tensors = charge.Count(TensorUse::kRecomputed),
                          .swapped_tensors = charge.Count(TensorUse::kSwapped)};
    for (const int node : stage.nodes) stage.parameter_bytes += graph.nodes[node].parameter_bytes;
    if (first > 0) {
      stage.input_bytes = chain.nodes[first - 1].boundary_bytes;
      stage.input_s = memory.LinkS(first, place - 1);
    }
    if (end < memory.nodes()) {
      stage.output_bytes = chain.nodes[end - 1].boundary_bytes;
      stage.output_s = memory.LinkS(end, place);
    }
    plan.stages.push_back(std::move(stage));
    first = end;
  }
  for (size_t at = plan.stages.size(); at-- > 0;) {
    if (plan.stages[at].period_s() == plan.period_s) plan.binding_stage = static_cast<int>(at);
  }
  const PlannedStage& binding = plan.stages[plan.binding_stage];
  plan.binding = binding.stage_s == plan.period_s ? Binding::kCompute : Binding::kLink;
  return plan;
}

}  // namespace penstock
