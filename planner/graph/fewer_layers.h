// A layer graph with fewer layers, which costs no more wherever it is placed: for bounds of graphs whose cuts are too many
// to list (planner/graph/ideals.h).
//
// A layer is left out together with its work and its parameters, and its readers read what it read. The bytes of these
// tensors then shrink to those of its own output, if that has fewer. So on whichever side of a cut the layer would be, no
// fewer bytes cross the cut than in the graph without the layer. The rest of a placement never needs more than the placement
// of all layers, and a bound for the smaller graph holds for the larger one.
//
// Layers with the least work, parameters and bytes, as parts of the graph's, go first.
//
// Pure functions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "planner/graph/cuts.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/time_budget.h"

namespace penstock {

struct ListedGraph {
  LayerGraph graph;
  CutFamily family;  // all of its cuts, as SortGraph sorts it
};

// Leaves out layers until at most `cuts_max` cuts are left. Tries some forty numbers of layers at most; takes
// O(layers * (layers + edges)) time and that of listing the cuts for each try.
// Errors: ResourceExhausted if layers that could go are not enough (those with several producers and several consumers
// stay), DeadlineExceeded if the budget is spent.
// REQUIRES: CheckLayerGraph(graph) is OK; cuts_max >= 2.
absl::StatusOr<ListedGraph> WithFewerLayers(const LayerGraph& graph, int64_t cuts_max,
                                            TimeBudget& budget);

// Returns the graph without the node, by the rule above. REQUIRES: it has at most one producer, or at most one consumer.
LayerGraph WithoutLayer(const LayerGraph& graph, int node);

}  // namespace penstock
