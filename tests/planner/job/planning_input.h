// A small job with a made-up profile, for tests of plans.
#pragma once

#include <limits>
#include <map>
#include <string>

#include "planner/graph/time_budget.h"
#include "planner/job/candidate.h"

namespace penstock {

// Of three blocks: 9 layers.
extern const char kPlannedJob[];

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// On one host, with nothing between them that takes time.
Cluster Alike(int workers);

// Every layer takes 1 ms for each third of a microbatch of 4 samples, and in proportion for others; layers
// named in `slow` so much longer.
PlanningInput InputOf(const std::string& job, Cluster cluster,
                      const std::map<std::string, double>& slow = {});

TimeBudget& Unlimited();

}  // namespace penstock
