// ImprovePlacement: small changes to a placement, as long as one of them is for the better.
//
// A cut between two stages moves; two workers change places; a worker joins another stage, or leaves for none; two
// stages become one. The result is a placement that no single change improves: a good one, not a proof.
//
// Pure functions.
#pragma once

#include "planner/graph/placement.h"
#include "planner/graph/placement_search.h"
#include "planner/graph/time_budget.h"

namespace penstock {

struct ScoredPlacement {
  ClusterPlacement placement;
  double score = 0;
};

ScoredPlacement ImprovePlacement(const PlacementCosts& costs, const PlacementJudge& judge,
                                 ScoredPlacement start, TimeBudget& budget);

}  // namespace penstock
