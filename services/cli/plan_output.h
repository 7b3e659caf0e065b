// A stage plan as text for people and as JSON.
//
// Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/graph/cluster.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/placement.h"
#include "planner/graph/stage_plan.h"

namespace penstock {

// What a profile gives to be cut into stages.
struct PlanInput {
  LayerGraph graph;
  std::vector<LayerMemory> memory;  // by node, where the profile has measured it
  std::string what;                 // for people: "resnet50.txt, 176 layers"
};

// A table of the stages, bars, and what binds. `cluster` has no workers where the plan has none.
std::string PlanText(const PlanInput& input, const Cluster& cluster, const StagePlan& plan);

nlohmann::ordered_json PlanJson(const PlanInput& input, const Cluster& cluster,
                                const StagePlan& plan);

}  // namespace penstock
