#include "planner/job/layer_orders.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/status.h"
#include "planner/graph/cuts.h"
#include "planner/graph/stage_planner.h"

namespace penstock {
namespace {

// Smaller gains are lost in what the model of costs leaves out.
constexpr double kGainMin = 1e-3;
// Where links take no time.
constexpr double kBytesPerSecondMax = 1e15;

// The order in which the profile's layers stand, with the values of a layer right behind it.
std::vector<int> OrderOfProfile(const ProfiledGraph& profiled) {
  const Neighbours neighbours = NeighboursOf(profiled.graph);
  std::vector<int> order;
  for (int layer = 0; layer < profiled.layers; ++layer) {
    order.push_back(layer);
    for (const int consumer : neighbours.consumers[layer]) {
      if (consumer >= profiled.layers) order.push_back(consumer);
    }
  }
  return order;
}

}  // namespace

bool IsChain(const ProfiledGraph& profiled) {
  const Neighbours neighbours = NeighboursOf(profiled.graph);
  const auto reads = [&](int layer, int producer) {
    const std::vector<int>& producers = neighbours.producers[layer];
    return std::any_of(producers.begin(), producers.end(), [&](int from) {
      const bool is_value = from >= profiled.layers;
      return (is_value ? neighbours.producers[from].front() : from) == producer;
    });
  };
  for (int layer = 1; layer < profiled.layers; ++layer) {
    if (!reads(layer, layer - 1)) return false;
  }
  return true;
}

LayerGraph ChainInOrder(const LayerGraph& graph, const std::vector<int>& order) {
  const Neighbours neighbours = NeighboursOf(graph);
  std::vector<int> readers_left(graph.nodes.size());
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    readers_left[node] = static_cast<int>(neighbours.consumers[node].size());
  }
  std::vector<LayerNode> nodes;
  for (const int node : order) {
    for (const int producer : neighbours.producers[node]) --readers_left[producer];
    nodes.push_back(graph.nodes[node]);
    double crossing = 0.0;
    for (size_t done = 0; done < nodes.size(); ++done) {
      if (readers_left[order[done]] > 0) crossing += graph.nodes[order[done]].activation_bytes;
    }
    nodes.back().activation_bytes = crossing;
  }
  return ChainGraph(std::move(nodes));
}

std::vector<std::string> LayerOrderOfPlan(const ProfiledGraph& profiled, const StagePlan& plan) {
  std::vector<int> order;
  for (const PlannedStage& stage : plan.stages) {
    const auto first = static_cast<int64_t>(order.size());
    std::copy_if(stage.nodes.begin(), stage.nodes.end(), std::back_inserter(order),
                 [&](int node) { return node < profiled.layers; });
    std::sort(order.begin() + first, order.end());
  }
  std::vector<std::string> names;
  if (std::is_sorted(order.begin(), order.end())) return names;
  for (const int layer : order) names.push_back(profiled.graph.nodes[layer].id);
  return names;
}

absl::StatusOr<std::vector<std::string>> BestLayerOrder(const ProfiledGraph& profiled, int stages,
                                                        double bytes_per_second,
                                                        TimeBudget& budget) {
  const std::vector<std::string> none;
  if (IsChain(profiled) || stages < 2) return none;
  StageCostModel model = ConsistentModel(std::min(bytes_per_second, kBytesPerSecondMax));
  model.replicates = false;
  const StagePlanRequest request = FlatRequest(stages, model);
  const LayerGraph chain = ChainInOrder(profiled.graph, OrderOfProfile(profiled));
  const absl::StatusOr<StagePlan> in_order = PlanStages(chain, request, budget);
  const absl::StatusOr<StagePlan> over_all = PlanStages(profiled.graph, request, budget);
  for (const absl::Status& status : {in_order.status(), over_all.status()}) {
    if (absl::IsDeadlineExceeded(status)) return none;
    PENSTOCK_RETURN_IF_ERROR(status);
  }
  if (over_all->period_s >= in_order->period_s * (1.0 - kGainMin)) return none;
  return LayerOrderOfPlan(profiled, *over_all);
}

}  // namespace penstock
