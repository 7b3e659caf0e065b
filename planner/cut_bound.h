// LowerBoundS: a period that no plan of a graph can beat, for graphs with too many cuts to list.
//
// All cuts are sorted into thin slices of the work inside them. Of the cuts in one slice three numbers
// are computed exactly, but for the rounding of work, without listing them: the fewest bytes that cross
// any, and the fewest and the most parameters inside any. A plan over slices, whose stages pay the
// least that these allow, is then no slower than the best plan over cuts, and planner/cut_search.h
// finds it.
//
// The three numbers come from a dynamic programme over the layers in a topological order of narrow
// width: its states say of every layer that still has readers to come whether it is outside, inside, or
// inside and already crossing, each with the best value by units of work. It takes
// O(layers * states * units of work) time, where states grow with the width of the order only.
//
// Pure functions.
#pragma once

#include "planner/cost_model.h"
#include "planner/cuts.h"
#include "planner/time_budget.h"

namespace penstock {

// At least the work of a worker if all share it evenly. When the budget ends early, or the graph is too
// wide (more than 30 layers wait for readers, or more than 20,000 states), the bound may be no more.
// REQUIRES: workers >= 1, CheckCostModel(model) is OK.
double LowerBoundS(const SortedGraph& graph, const StageCostModel& model, int workers,
                   TimeBudget& budget);

}  // namespace penstock
