// NodeChain: a model as fine-grained nodes in one order, with the tensor that each leaves for its backward.
//
// A node is the smallest thing that was timed: an operation of a published graph, a layer of a profile. It has one saved
// tensor, which a stage keeps, makes once more (recomputes) or copies to the host and back (swaps). Times and sizes are
// of one microbatch.
//
// Plain values and pure functions.
#pragma once

#include <vector>

#include "planner/graph/layer_graph.h"
#include "planner/graph/placement.h"

namespace penstock {

struct ChainNode {
  double forward_s = 0;
  double backward_s = 0;
  double weight_bytes = 0;  // of one version
  double state_bytes = 0;   // gradients and optimizer
  double saved_bytes = 0;
  double boundary_bytes =
      0;  // that cross a cut behind it, and so of the input of a stage that begins there
  bool may_end_stage = true;

  double work_s() const { return forward_s + backward_s; }
};

using NodeChain = std::vector<ChainNode>;

// A chain of a graph's nodes in a topological order.
struct GraphChain {
  NodeChain nodes;
  std::vector<int> node_of;  // by place in the chain: the index in the graph
};

// Returns the graph in the order of planner/graph/cuts.h: a cut behind a node carries what CutFamily charges for that
// prefix. `memory` is by node. REQUIRES: CheckLayerGraph(graph) is OK.
GraphChain ChainOfGraph(const LayerGraph& graph, const std::vector<LayerMemory>& memory);

}  // namespace penstock
