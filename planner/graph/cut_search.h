// CutSearch: the best way to cut a family of cuts into stages and to replicate them, exactly.
//
// The published dynamic programmes (SOSP'19, section 3.1; arXiv 1806.03377) fill a table over cuts and
// workers, O(cuts^2 workers^2). Here the period is guessed instead: for a given period T every cut has
// a least number of replicas beside it (its link), every stage a range of replicas that do
// (StageCostModel), so one sweep over the pairs of cuts decides which numbers of workers reach which
// cut, O(cuts^2) whatever the number of workers, and most pairs are refused by one comparison: a stage
// from cut k takes work(k, j) / T workers at least, and so do the layers behind j. Bisection between
// the best plan found and the largest period proven too small ends with the optimum over the family.
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

// The largest of all stage and link times of `plan`; the definition of what is minimised.
double PeriodOf(const CutFamily& family, const StageCostModel& model, const CutPlan& plan);

struct CutSearchResult {
  // Absent if none is better than asked for, or none was found in time.
  std::optional<CutPlan> plan;
  // No plan over this family has a smaller period. Equal to the plan's, but for 1e-12 of it, unless
  // the time ran out.
  double lower_bound_s = 0;
  bool in_time = true;
};

// The plan with the smallest period below `must_beat_s` (relative margin 1e-12). Equal periods: any.
// With a `tolerance`, a plan whose period is above the lower bound by no more than that part will do.
// REQUIRES: workers >= 1, CheckCostModel(model) is OK.
CutSearchResult SearchCuts(const CutFamily& family, const StageCostModel& model, int workers,
                           double must_beat_s, TimeBudget& budget, double tolerance = 0);

// By cut: no plan over this family with a period of at most `period_s` has fewer workers for the layers
// inside, of which as many as it likes may stay idle. One more than `workers` where no such plan has the
// cut. Absent if the time ran out. REQUIRES: as SearchCuts.
std::optional<std::vector<int>> LeastWorkers(const CutFamily& family, const StageCostModel& model,
                                             int workers, double period_s, TimeBudget& budget);

}  // namespace penstock
