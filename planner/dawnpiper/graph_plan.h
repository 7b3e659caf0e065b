// A plan of a layer graph for a 1F1B pipeline on a cluster whose workers have limited memory, as DawnPiper makes it or as
// the best cuts under the same costs have it.
//
// Stage s runs on the cluster's worker s, without replicas; a worker for each stage, and a stage for each worker.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/dawnpiper/chain_partition.h"
#include "planner/dawnpiper/stage_memory.h"
#include "planner/graph/cluster.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/placement.h"
#include "planner/graph/stage_plan.h"

namespace penstock {

struct ChainPlanRequest {
  Cluster cluster;
  std::vector<LayerMemory> memory;  // by node
  MemoryRule rule;                  // without may_recompute every tensor is kept
  ChainPlanner planner = ChainPlanner::kDawnPiper;
  TensorChoice choice = TensorChoice::kPerTensor;
  double host_bytes_per_second =
      0;  // of a worker's copies to its host's memory, each way; 0: nothing is swapped
};

// The plan's bound is that of the best cuts for workers without limits of memory.
// Errors: InvalidArgument of CheckLayerGraph and CheckCluster, for a graph larger than kChainNodesMax, more workers than
// nodes, or if `memory` is not by node; FailedPrecondition if nothing that it tries fits into memory.
inline constexpr int kChainNodesMax = 2'000;
absl::StatusOr<StagePlan> PlanChain(const LayerGraph& graph, const ChainPlanRequest& request);

}  // namespace penstock
