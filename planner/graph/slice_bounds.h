// SliceBounds: what holds for every cut of a layer graph with a given amount of work inside.
//
// Bytes that cross and parameters inside are bounded together: in addition to the least of each alone, the least of
// their sums with several weights (planner/graph/cut_programme.h) says how few bytes can cross a cut with a given
// amount of parameters inside.
//
// Pure functions; planner/graph/cut_bound.h says what for.
#pragma once

#include <optional>
#include <vector>

#include "planner/graph/cut_programme.h"
#include "planner/graph/cuts.h"
#include "planner/graph/time_budget.h"

namespace penstock {

class SliceBounds {
 public:
  // Returns nullopt if the budget ends, or if the graph is too wide (planner/graph/cut_programme.h) or has no work.
  static std::optional<SliceBounds> Of(const SortedGraph& graph, TimeBudget& budget);

  // Returns the empty cut, `slices` of equal work, each as `bands` of parameters, and the whole graph. Slices and bands
  // without any cut are left out.
  std::vector<CutFamily::Slice> Slices(int slices, int bands) const;

  // Splits each of `slices`, which may be some of those above, in two by work and these in two by parameters.
  std::vector<CutFamily::Slice> Halves(const std::vector<CutFamily::Slice>& slices) const;

 private:
  // Holds the least of a weighted sum of live bytes and parameters, by units of work.
  struct Curve {
    double live_weight = 0;
    double parameter_weight = 0;
    std::vector<float> least;
  };

  SliceBounds() = default;
  // Returns no more than the sum of any cut with work from `from_s` to `to_s`; infinite if there is none.
  double Least(const Curve& curve, double from_s, double to_s) const;
  // Adds the bands of one slice of work, within `within`.
  void AddBands(const CutFamily::Slice& within, int bands,
                std::vector<CutFamily::Slice>& slices) const;

  double work_s_ = 0;
  double parameter_bytes_ = 0;
  double unit_s_ = 0;
  CutProgramme::Rounding rounding_;
  double charge_margin_ = 0;
  Curve live_;
  Curve least_parameters_;
  Curve most_parameters_;  // with the sign changed
  std::vector<Curve> sums_;
};

}  // namespace penstock
