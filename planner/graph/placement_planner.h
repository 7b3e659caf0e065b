// PlanPlacement: the fastest way to run a layer graph on the workers of a cluster that are not all alike.
//
// It starts from the plans of others (PipeDream's, flat and over hosts; stages of equally many layers, each with
// equally many workers, as PipeDream-2BW plans; data parallelism), so that it never ends with a slower one under the
// model of planner/graph/placement.h. It goes on with placements in several orders of the workers
// (planner/graph/in_order_search.h), improves the best by small changes and, where there are few enough placements,
// looks through all of them (planner/graph/placement_search.h).
//
// It always ends with the best found when its time is spent, and with a bound on how much faster any plan could be.
// Pure functions but for the clock behind the budget.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/graph/cluster.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/placement.h"
#include "planner/graph/stage_plan.h"
#include "planner/graph/time_budget.h"

namespace penstock {

enum class PlacementGoal : uint8_t {
  kPeriod,  // the fastest
  kMemory,  // the least memory on the worker that needs most
};

struct PlacementRequest {
  Cluster cluster;
  std::vector<LayerMemory> memory;  // by node
  MemoryRule rule;
  PlacementGoal goal = PlacementGoal::kPeriod;
};

// Errors: InvalidArgument of CheckLayerGraph and CheckCluster, for a graph or cluster larger than
// planner/graph/stage_planner.h plans, or if `memory` is not by node;
// FailedPrecondition if nothing found fits into memory, with the memory that would do;
// DeadlineExceeded if the budget is spent before any plan is found.
absl::StatusOr<StagePlan> PlanPlacement(const LayerGraph& graph, const PlacementRequest& request,
                                        TimeBudget& budget);

// PlacedNodes put a plan of planner/graph/stage_planner.h, of one level or of workers in hosts, on a cluster. Stages
// take workers in the cluster's order; where a stage of hosts has several, the pipelines inside them run side by side.
// The caller adds its cuts to `sets`' family.
struct PlacedNodes {
  std::vector<int> nodes;
  std::vector<int> workers;
};
// REQUIRES: the plan has at most two levels and no more workers than the cluster; with two, all hosts
// have as many workers as the lower level.
std::vector<PlacedNodes> PlaceInOrder(const StagePlan& plan, const Cluster& cluster);

// Returns what a plan given as nodes and workers costs, as a StagePlan. Errors: as PlanPlacement; InvalidArgument if
// the nodes are no stages of the graph.
absl::StatusOr<StagePlan> ChargePlan(const LayerGraph& graph, const PlacementRequest& request,
                                     const std::vector<PlacedNodes>& stages);

}  // namespace penstock
