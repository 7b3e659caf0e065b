#include "planner/graph/cut_bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "planner/graph/cut_search.h"
#include "planner/graph/slice_bounds.h"

namespace penstock {
namespace {

using Slices = std::vector<CutFamily::Slice>;

constexpr int kSlices = 512;
constexpr int kBands = 6;
constexpr int kHalvingsMax = 7;        // for one period
constexpr size_t kSlicesMax = 10'000;  // at once
constexpr double kTolerance = 2e-4;    // relative

// Returns the same slices, counted from the end of the graph.
Slices Mirrored(const Slices& slices) {
  const CutFamily::Slice& whole = slices.back();
  Slices mirrored;
  for (size_t at = slices.size(); at-- > 0;) {
    const CutFamily::Slice& slice = slices[at];
    mirrored.push_back(
        {.least_work_s = whole.least_work_s - slice.most_work_s,
         .most_work_s = whole.least_work_s - slice.least_work_s,
         .least_parameter_bytes = whole.least_parameter_bytes - slice.most_parameter_bytes,
         .most_parameter_bytes = whole.least_parameter_bytes - slice.least_parameter_bytes,
         .least_live_bytes = slice.least_live_bytes});
  }
  return mirrored;
}

// Returns the slices that a cut of a plan with a period of at most `period_s` may be in: the layers inside and those
// outside do not need too many workers. Returns no slices if there is no such plan, and nullopt if the time ran out.
std::optional<Slices> Reachable(const Slices& slices, const StageCostModel& model, int workers,
                                double period_s, TimeBudget& budget) {
  const auto inside = LeastWorkers(CutFamily::OfSlices(slices), model, workers, period_s, budget);
  if (!inside.has_value()) return std::nullopt;
  if (inside->back() > workers) return Slices();
  StageCostModel behind = model;
  // The first stage, which alone may send free, is behind no cut.
  if (behind.link == LinkRule::kOwnReplicas) behind.link = LinkRule::kSmallerSide;
  const auto outside =
      LeastWorkers(CutFamily::OfSlices(Mirrored(slices)), behind, workers, period_s, budget);
  if (!outside.has_value()) return std::nullopt;
  Slices reachable;
  for (size_t at = 0; at < slices.size(); ++at) {
    const bool is_end = at == 0 || at + 1 == slices.size();
    if (is_end || (*inside)[at] + (*outside)[slices.size() - 1 - at] <= workers) {
      reachable.push_back(slices[at]);
    }
  }
  return reachable;
}

// Returns `bound_s` or a better bound, from ever thinner slices where a plan may be cut. A period is proven too short
// when no plan over slices keeps it. `open_s` is the shortest for which that failed, or the one to beat, and plans with
// shorter ones may be cut in `slices`.
double RefinedBoundS(const SliceBounds& bounds, Slices slices, const StageCostModel& model,
                     int workers, double bound_s, double open_s, TimeBudget& budget) {
  while (open_s > bound_s * (1 + kTolerance)) {
    const double period_s = (bound_s + open_s) / 2;
    Slices thinner = slices;
    for (int halving = 0;; ++halving) {
      std::optional<Slices> reachable = Reachable(thinner, model, workers, period_s, budget);
      if (!reachable.has_value()) return bound_s;
      if (reachable->empty()) {
        bound_s = period_s;
        break;
      }
      // Each slice becomes up to four.
      if (halving == kHalvingsMax || reachable->size() > kSlicesMax / 4) {
        open_s = period_s;
        slices = *std::move(reachable);
        break;
      }
      thinner = bounds.Halves(*reachable);
    }
  }
  return bound_s;
}

}  // namespace

double LowerBoundS(const SortedGraph& graph, const StageCostModel& model, int workers,
                   double known_s, TimeBudget& budget) {
  const double even_s =
      std::accumulate(graph.work_s.begin(), graph.work_s.end(), 0.0) / workers * (1 - 1e-12);
  const std::optional<SliceBounds> bounds = SliceBounds::Of(graph, budget);
  if (!bounds.has_value()) return even_s;
  // Several cuts in one slice become one, so a plan over slices may need fewer workers.
  StageCostModel at_most = model;
  at_most.uses_all_workers = false;
  Slices slices = bounds->Slices(kSlices, kBands);
  const CutSearchResult result =
      SearchCuts(CutFamily::OfSlices(slices), at_most, workers, known_s, budget, kTolerance);
  const double bound_s = std::max(even_s, result.lower_bound_s);
  // No plan over slices is better than the known one, or no known period is there to refuse slices by.
  if (!result.plan.has_value() || !std::isfinite(known_s)) return bound_s;
  return RefinedBoundS(*bounds, std::move(slices), at_most, workers, bound_s, known_s, budget);
}

}  // namespace penstock
