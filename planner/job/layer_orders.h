// Layer orders: in which topological order a measured model's layers are best cut into stages.
//
// A job's stages are consecutive layers of one order, so a plan over all cuts of its graph
// (planner/graph/stage_planner.h) becomes a job by putting its stages behind one another: the prefixes of that
// order are the plan's cuts. For a chain there is one order. Of PipeDream's published profiles GNMT's gain 4.4 to
// 17.6 % by another one.
//
// Pure functions but for the clock behind the budget.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/graph/cost_model.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/stage_plan.h"
#include "planner/graph/time_budget.h"
#include "planner/job/profiled_graph.h"

namespace penstock {

// Whether there is only one order.
bool IsChain(const ProfiledGraph& profiled);

// Returns the chain whose cuts are the prefixes of `order` (all nodes of `graph`, producers first): each node hands on
// all that crosses behind it.
LayerGraph ChainInOrder(const LayerGraph& graph, const std::vector<int>& order);

// Returns the names of the layers as the stages of a plan of `profiled.graph` have them, one stage behind the
// other, and inside each as in the profile. Empty: that is the order of the profile.
std::vector<std::string> LayerOrderOfPlan(const ProfiledGraph& profiled, const StagePlan& plan);

// Returns the names of the layers in the order with the shortest period on `stages` equal workers, one stage each,
// whose links carry `bytes_per_second`. Empty: that of the profile is as good, or the budget ended before a better
// one was found.
// Errors: those of PlanStages but for the budget.
absl::StatusOr<std::vector<std::string>> BestLayerOrder(const ProfiledGraph& profiled, int stages,
                                                        double bytes_per_second,
                                                        TimeBudget& budget);

}  // namespace penstock
