// LowerBoundS: a period that no plan of a graph can beat, for graphs with too many cuts to list.
//
// All cuts are sorted into slices by the work inside them, and these into bands by the parameters inside. The fewest
// bytes that can cross any cut of a band are computed without listing its cuts (planner/graph/slice_bounds.h). A plan
// over bands, whose stages pay the least that these allow, is then no slower than the best plan over cuts, and
// planner/graph/cut_search.h finds it. Slices in which a plan that beats the known one may still be cut are halved
// repeatedly.
//
// Pure functions.
#pragma once

#include "planner/graph/cost_model.h"
#include "planner/graph/cuts.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Returns at least the work of a worker if all share it evenly. The bound may be no more than that if the budget ends
// early or the graph is too wide for a narrow order (planner/graph/narrow_order.h). It is at most `known_s`, the period
// of some plan, except for rounding.
// REQUIRES: workers >= 1, CheckCostModel(model) is OK.
double LowerBoundS(const SortedGraph& graph, const StageCostModel& model, int workers,
                   double known_s, TimeBudget& budget);

}  // namespace penstock
