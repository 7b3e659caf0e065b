#include "planner/cut_bound.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "planner/cut_search.h"
#include "planner/slice_bounds.h"

namespace penstock {

double LowerBoundS(const SortedGraph& graph, const StageCostModel& model, int workers,
                   double known_s, TimeBudget& budget) {
  constexpr int kSlices = 2048;
  constexpr double kTolerance = 3e-4;
  const double even_s =
      std::accumulate(graph.work_s.begin(), graph.work_s.end(), 0.0) / workers * (1 - 1e-12);
  const std::optional<std::vector<CutFamily::Slice>> slices = BoundSlices(graph, kSlices, budget);
  if (!slices.has_value()) return even_s;
  // Several cuts in one slice become one, so a plan over slices may need fewer workers.
  StageCostModel at_most = model;
  at_most.uses_all_workers = false;
  const CutSearchResult result =
      SearchCuts(CutFamily::OfSlices(*slices), at_most, workers, known_s, budget, kTolerance);
  return std::max(even_s, result.lower_bound_s);
}

}  // namespace penstock
