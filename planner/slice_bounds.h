// SliceBounds: what holds for every cut of a layer graph with so much work inside.
//
// Bytes that cross and parameters inside are bounded together: besides the least of each alone, the
// least of their sums with several weights (planner/cut_programme.h) says how few bytes can cross a cut
// with so many parameters inside.
//
// Pure functions; planner/cut_bound.h says what for.
#pragma once

#include <optional>
#include <vector>

#include "planner/cuts.h"
#include "planner/time_budget.h"

namespace penstock {

// The empty cut, `slices` of equal work, each as several bands of parameters, and the whole graph. A
// slice without any cut is left out. Absent if the budget ends or the graph is too wide.
std::optional<std::vector<CutFamily::Slice>> BoundSlices(const SortedGraph& graph, int slices,
                                                         TimeBudget& budget);

}  // namespace penstock
