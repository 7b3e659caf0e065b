// NarrowOrder: an order of a graph's layers in which few kinds of cuts must be told apart.
//
// The cost of a programme over the layers (planner/graph/cut_programme.h) is the number of its states
// (planner/graph/cut_states.h), summed over the order. A beam search over which layers come first keeps that sum small:
// for NASNet-A large it is a twentieth of what results from leaving the fewest layers waiting.
//
// Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "planner/graph/cuts.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Returns positions, producers before consumers. Absent if the budget ends or no order was found in which at most 30
// layers wait for readers, with at most 20,000 states.
std::optional<std::vector<int>> NarrowOrder(const SortedGraph& graph, TimeBudget& budget);

}  // namespace penstock
