// HierarchySearch: PipeDream's plans over levels: workers in a host, hosts in a cluster.
//
// Level k joins workers(k) components of level k - 1 by links of its own speed. A stage of level k is
// a range of layers that some of its components run, each as a pipeline of level k - 1 of exactly
// workers(k - 1) workers, the lowest by one worker (SOSP'19, section 3.1):
//
//   A_k(i, j, m) = min over a cut s and m' < m of max(A_k(i, s, m - m'), links(s), T_k(s, j, m'))
//   T_k(i, j, m) = the stage time of m replicas whose work is A_{k-1}(i, j, workers(k - 1))
//
// The released optimizer differs from the paper in two more ways than its stage times: the averaging of
// a level's first stage is divided by the workers of one component, and every other stage's own output
// is charged to it, at every level.
//
// Below the top, whole rows (i, all j) are computed, only where the level above can reach i, and only
// as far as a value can matter: no part of a plan better than the best known takes longer than
// m U less what averaging its parameters takes, for some m. U comes from a small subfamily first.
//
// Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "planner/graph/cost_model.h"
#include "planner/graph/cuts.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Says how many of the components below it a level joins, and what its stages and links cost.
struct HierarchyLevel {
  int workers = 1;
  StageCostModel model;  // of link rule kFree, kWhole or kOwnReplicas; uses all workers
};

// Describes a stage of a level, and what runs in one replica of it.
struct HierarchyStage {
  int from_cut = 0;
  int to_cut = 0;
  int replicas = 1;
  std::vector<HierarchyStage> inner;  // empty at the lowest level
};

struct HierarchyPlan {
  std::vector<HierarchyStage> stages;  // of the top level
  double period_s = 0;
};

struct HierarchySearchResult {
  std::optional<HierarchyPlan> plan;  // absent: there is none, or none was found in time
  double lower_bound_s = 0;
  bool in_time = true;
};

// Takes levels from the lowest up. REQUIRES: at least one level, of at least one worker each.
HierarchySearchResult SearchHierarchy(const CutFamily& family,
                                      const std::vector<HierarchyLevel>& levels,
                                      TimeBudget& budget);

// Returns the period that PipeDream compares with: one stage, all layers on every worker, averaged level by level.
double DataParallelS(const SortedGraph& graph, const std::vector<HierarchyLevel>& levels);

}  // namespace penstock
