// CutSearch: the best way to cut a family of cuts into stages and to replicate them, exactly.
//
// The published dynamic programmes (SOSP'19, section 3.1; arXiv 1806.03377) fill a table over cuts and workers,
// O(cuts^2 workers^2). Here the period is guessed instead: for a given period T every cut needs a least number of
// replicas on either side (its link), and every stage has a range of replicas that keep it (StageCostModel). One sweep
// over the pairs of cuts decides which numbers of workers reach which cut, O(cuts^2) for any number of workers. One
// comparison refuses most pairs: a stage from cut k takes at least work(k, j) / T workers, and so do the layers behind
// j. Bisection between the best plan found and the largest period proven too small ends with the optimum over the
// family.
//
// Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "planner/graph/cost_model.h"
#include "planner/graph/cuts.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Stage s lies between cuts[s] and cuts[s + 1].
struct CutPlan {
  std::vector<int> cuts;      // from 0 to the family's last; one more than stages
  std::vector<int> replicas;  // by stage
  double period_s = 0;        // of the model, PeriodOf
};

// Returns the largest of all stage and link times of `plan`, which is what the search minimises.
double PeriodOf(const CutFamily& family, const StageCostModel& model, const CutPlan& plan);

struct CutSearchResult {
  // This is absent if none is better than asked for, or none was found in time.
  std::optional<CutPlan> plan;
  // No plan over this family has a smaller period. It equals the plan's, except for 1e-12 of it, unless the time ran
  // out.
  double lower_bound_s = 0;
  bool in_time = true;
};

// Returns the plan with the smallest period below `must_beat_s` (relative margin 1e-12), any of several with equal
// periods. With a `tolerance`, a plan whose period is above the lower bound by no more than that part will do.
// REQUIRES: workers >= 1, CheckCostModel(model) is OK.
CutSearchResult SearchCuts(const CutFamily& family, const StageCostModel& model, int workers,
                           double must_beat_s, TimeBudget& budget, double tolerance = 0);

// Returns by cut the number of workers for the layers inside that no plan over this family with a period of at most
// `period_s` goes below; any of them may stay idle. It is `workers` + 1 where no such plan has the cut. Returns nullopt
// if the time ran out. REQUIRES: as SearchCuts.
std::optional<std::vector<int>> LeastWorkers(const CutFamily& family, const StageCostModel& model,
                                             int workers, double period_s, TimeBudget& budget);

}  // namespace penstock
