// LayerGraph: what a profile says of a model: its layers, what each costs, and which reads whose output.
//
// A layer's output is one tensor: a cut of the graph carries it once, however many readers lie behind
// (planner/graph/cuts.h). Times and sizes are of one minibatch on one worker.
//
// Plain values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

struct LayerNode {
  std::string id;           // unique in the graph: "node12"
  std::string description;  // "Conv2d(3, 64, kernel_size=(3, 3))"
  double forward_s = 0;
  double backward_s = 0;
  double activation_bytes = 0;  // of the output, and so of its gradient
  double parameter_bytes = 0;

  double work_s() const { return forward_s + backward_s; }
  friend bool operator==(const LayerNode&, const LayerNode&) = default;
};

// `to` reads the output of `from`; both are indices into the nodes.
struct LayerEdge {
  int from = 0;
  int to = 0;
  friend bool operator==(const LayerEdge&, const LayerEdge&) = default;
};

struct LayerGraph {
  std::vector<LayerNode> nodes;
  std::vector<LayerEdge> edges;  // an edge named twice counts once
  friend bool operator==(const LayerGraph&, const LayerGraph&) = default;
};

// Larger graphs, times and sizes are refused, so that every sum below is finite and exact enough.
inline constexpr int kLayerNodesMax = 100'000;
inline constexpr int kLayerEdgesMax = 1'000'000;
inline constexpr double kLayerSecondsMax = 1e6;
inline constexpr double kLayerBytesMax = 1e15;

// Returns InvalidArgument, naming the node, unless the graph has 1 to kLayerNodesMax nodes and at most kLayerEdgesMax
// edges between them, ids are unique and not empty, times and sizes are numbers from 0 to the limits above, and no
// layer reads its own output, directly or through others.
absl::Status CheckLayerGraph(const LayerGraph& graph);

// Checks one node's times and sizes, as CheckLayerGraph does.
absl::Status CheckLayerNode(const LayerNode& node);

// Lists the neighbours by node, without repetition, in the order of the edges.
struct Neighbours {
  std::vector<std::vector<int>> producers;  // whose outputs it reads
  std::vector<std::vector<int>> consumers;  // who reads its output
};
// REQUIRES: every edge joins two nodes.
Neighbours NeighboursOf(const LayerGraph& graph);

// These return the nodes that read no output, and the nodes whose output nobody reads, ascending.
std::vector<int> SourcesOf(const LayerGraph& graph);
std::vector<int> SinksOf(const LayerGraph& graph);

// Returns every node after what it reads, the earliest possible node first. Errors: InvalidArgument with one cycle
// written out if there is any. REQUIRES: every edge joins two nodes.
absl::StatusOr<std::vector<int>> TopologicalOrder(const LayerGraph& graph);

// Returns the graph without the nodes in `removed`, which is by node, and without the edges at them.
LayerGraph WithoutNodes(const LayerGraph& graph, const std::vector<bool>& removed);

// Returns a graph without branches: each layer reads the one before.
LayerGraph ChainGraph(std::vector<LayerNode> nodes);

// These add up over all nodes.
double TotalWorkS(const LayerGraph& graph);
double TotalParameterBytes(const LayerGraph& graph);

}  // namespace penstock
