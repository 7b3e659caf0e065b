// A stage plan as text for people and as JSON.
//
// Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "planner/graph/cluster.h"
#include "planner/graph/stage_plan.h"
#include "services/cli/plan_input.h"

namespace penstock {

// A table of the stages, bars, and what binds. `cluster` has no workers where the plan has none.
std::string PlanText(const PlanInput& input, const Cluster& cluster, const StagePlan& plan);

nlohmann::ordered_json PlanJson(const PlanInput& input, const Cluster& cluster,
                                const StagePlan& plan);

}  // namespace penstock
