// PlacementSearch: the best placement of all, by branch and bound.
//
// Stages are put on from the last to the first, so that what is in flight on a stage, and with it its memory, is known
// when it is put. A branch ends where its stages and the least that the rest could take are no better than the best
// placement known. Workers that are alike are taken in one order, and so are hosts.
//
// The search takes time exponential in layers and workers: it is for small instances, and to prove or improve what
// planner/graph/in_order_search.h found for others, within a limit.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/graph/placement.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Says what a placement is worth; smaller is better. Implementations are pure.
class PlacementJudge {
 public:
  virtual ~PlacementJudge() = default;

  // Returns infinity if it cannot be run.
  virtual double Score(const PlacementCosts& costs, const ClusterPlacement& placement) const = 0;
  // No placement with at least this period and this memory on a worker has a smaller score.
  virtual double Bound(double period_s, double memory_bytes) const = 0;
};

// These score by the period, and by the largest memory that a worker needs.
const PlacementJudge& PeriodJudge();
const PlacementJudge& MemoryJudge();

struct PlacementSearchResult {
  std::optional<ClusterPlacement> placement;  // better than asked for; absent if there is none
  double score = 0;                           // of it, or what was to be beaten
  bool is_complete = true;  // else the search ended early: there may be better ones
};

// Returns the best placement with a score below `must_beat` (relative margin 1e-12), looking at `stages_max` stages at
// most.
PlacementSearchResult SearchPlacements(const PlacementCosts& costs, const PlacementJudge& judge,
                                       double must_beat, int64_t stages_max, TimeBudget& budget);

}  // namespace penstock
