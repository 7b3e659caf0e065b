// InOrderSearch: the best placement whose stages take workers in a given order, one stage after the other.
//
// Workers come in units, which a stage takes whole: a single worker, several of one host, or one of each of several
// hosts that all run the same pipeline side by side. For a guessed period a sweep over cuts from the last to the first
// decides which suffixes of the graph some suffix of the units can hold; bisection ends with the least period. Of
// several ways to the same place, only the one with the least load on any resource goes on, so a way that only another
// would have kept open is lost: the result is a good placement, not a proof.
//
// A sweep takes O(cuts^2 units^3) steps at most; those that the work alone rules out, nearly all, cost nothing.
//
// Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "planner/graph/placement.h"
#include "planner/graph/time_budget.h"

namespace penstock {

using WorkerUnits = std::vector<std::vector<int>>;

// Returns the placement found with a period below `must_beat_s`, the best but for `tolerance` of it.
// REQUIRES: no worker is in two units; `must_beat_s` is finite or memory is all that limits.
std::optional<ClusterPlacement> SearchInOrder(const PlacementCosts& costs, const WorkerUnits& units,
                                              double must_beat_s, double tolerance,
                                              TimeBudget& budget);

}  // namespace penstock
