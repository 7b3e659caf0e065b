// LightCutsBetween: light cuts inside one cut and around another, to improve a plan at one of its cuts.
//
// The lightest cuts of a whole graph (planner/graph/cut_programme.h) are one for each of its units of work, and
// need not lie inside each other. Cuts between two cuts of a plan do fit the rest of it, and the layers
// between them are few enough for thinner units.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/graph/cuts.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Returns cuts of `graph` around `inner` and inside `outer`: for most of `units` parts of the work between them, one
// with about the least sum of the bytes that cross and `weight` times the parameters inside. Absent if the budget ends
// or the graph is too wide (planner/graph/narrow_order.h). REQUIRES: `inner` lies inside `outer`.
std::optional<NodeSets> LightCutsBetween(const SortedGraph& graph, const uint64_t* inner,
                                         const uint64_t* outer, int units, double weight,
                                         TimeBudget& budget);

}  // namespace penstock
