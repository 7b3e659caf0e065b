// ColumnSearch: placements for many hosts that are alike, found host by host.
//
// The layers are cut into runs, and every run gets some hosts of its own, its column. The hosts of a column do the same
// side by side: they cut the run into stages, give each some of their workers, and take the minibatches in turn, so that
// what crosses between the stages of a column stays inside hosts. A column of g hosts then needs, on each host's NIC and
// for a minibatch,
//
//   (O + O') / g        for the cuts at its ends
//   2 P (g - 1) / g^2   for the gradients of its layers
//
// whatever the stages inside are. For a guessed period the furthest cut that g hosts reach from another, and with it the
// fewest hosts for all layers before a cut, come from a table over cuts; bisection ends with the least period. Such
// placements are those that are fast where there are many hosts: a pipeline of hosts, replicas on all of them, and mixes.
//
// A guess takes O(cuts^2 widths) steps, for some thirty widths of columns. Memory is not looked at.
//
// Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "planner/graph/placement.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Returns the placement of columns with the least period, to 0.1 %, among those whose cuts are in `chain`; nullopt if
// none takes less than `must_beat_s`. Unlike hosts count as the least of them.
// REQUIRES: each cut of `chain` is inside the next, from the empty one to that of all layers; all hosts have as many
// workers; `must_beat_s` is finite.
std::optional<ClusterPlacement> SearchColumns(const PlacementCosts& costs,
                                              const std::vector<int>& chain, double must_beat_s,
                                              TimeBudget& budget);

}  // namespace penstock
