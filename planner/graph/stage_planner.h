// PlanStages: the fastest way to cut a layer graph into replicated stages under a cost model.
//
// One call serves every model of planner/graph/cost_model.h, for one level of workers or several. It is exact where the
// cuts of the graph can be listed; otherwise it finds the best over a beam of them, with a bound on how much faster any
// plan could be. It always ends with the best found when its time is spent.
//
// Pure functions but for the clock behind the budget.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/graph/hierarchy_search.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/stage_plan.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Says which cuts a plan may use, and what crosses them.
enum class CutRule : uint8_t {
  kIdeals,      // every cut, with its true size
  kAntichains,  // those of PipeDream's released optimizer, with the sizes it gives them
};

struct StagePlanRequest {
  // Levels go from the lowest up, one for a flat cluster. Several need a model that PipeDream defines for levels:
  // released or 2019, the same at each but for the bandwidth.
  std::vector<HierarchyLevel> levels;
  CutRule cuts = CutRule::kIdeals;

  // Graphs with more cuts are planned over the best ones of each size.
  int64_t cuts_max = 20'000;
};

inline constexpr int kPlanLayersMax = 5'000;
inline constexpr int kPlanWorkersMax = 4'096;  // of all levels together

// Returns the request for one level of `workers` with one model.
StagePlanRequest FlatRequest(int workers, const StageCostModel& model);

// Errors: InvalidArgument for a graph that CheckLayerGraph refuses or with too many layers, invalid levels or
// bandwidths, too many workers, or a straight pipeline that must use more workers than there are layers to cut;
// DeadlineExceeded if the budget is spent before any plan is found; ResourceExhausted or FailedPrecondition of
// AntichainStates.
absl::StatusOr<StagePlan> PlanStages(const LayerGraph& graph, const StagePlanRequest& request,
                                     TimeBudget& budget);

}  // namespace penstock
