// Draws a stage plan as bars, with characters or as a self-contained SVG picture: a row for each stage and for each
// link between two, its times against the period that the longest of them sets.
//
// Pure functions.
#pragma once

#include <string>

#include "planner/graph/layer_graph.h"
#include "planner/graph/stage_plan.h"

namespace penstock {

// REQUIRES (both): the plan is of the graph and has stages. Plans over levels are drawn by their top level.
std::string RenderPlanText(const LayerGraph& graph, const StagePlan& plan);
std::string RenderPlanSvg(const LayerGraph& graph, const StagePlan& plan, const std::string& title);

}  // namespace penstock
