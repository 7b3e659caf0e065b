// SliceBounds: what holds for every cut of a layer graph with so much work inside.
//
// Pure functions; planner/cut_bound.h says how and what for.
#pragma once

#include <optional>
#include <vector>

#include "planner/cuts.h"
#include "planner/time_budget.h"

namespace penstock {

// The slices of all cuts, `slices` of equal work between the empty cut's and that of the whole graph.
// A slice without any cut is left out. Absent if the budget ends or the graph is too wide.
std::optional<std::vector<CutFamily::Slice>> BoundSlices(const SortedGraph& graph, int slices,
                                                         TimeBudget& budget);

}  // namespace penstock
