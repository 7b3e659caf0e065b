// CutProgramme: for every amount of work, the cut with the least charge, without listing cuts.
//
// A dynamic programme over the layers in a topological order of narrow width. Its states say of every
// layer that still has readers to come whether it is outside, inside, or inside with a reader outside,
// each with the least charge by units of work inside. The number of states grows with the width of the
// order, not with the number of cuts: a few hundred for the published NASNets.
//
// Takes O(layers * states * units) time. Thread-compatible.
#pragma once

#include <optional>
#include <vector>

#include "planner/cuts.h"
#include "planner/time_budget.h"

namespace penstock {

// What a cut is charged for, by position: a layer inside, and one inside with a reader outside.
struct CutCharges {
  std::vector<double> inside;
  std::vector<double> crossing;
};

class CutProgramme {
 public:
  // Counts work in `units` parts of the graph's. `graph` and `budget` must outlive it.
  CutProgramme(const SortedGraph& graph, int units, TimeBudget& budget);

  double unit_s() const { return unit_s_; }

  // Each of these gives up, without a value, when the budget ends or the graph is too wide: more than
  // 30 layers wait for readers, or there are more than 20,000 states.

  // The least charge of all cuts, by units of work inside; infinite where no cut is. Sums are single
  // precision, kChargeMargin of the largest sum off at most.
  static constexpr double kChargeMargin = 1e-4;
  std::optional<std::vector<float>> LeastCharges(const CutCharges& charges);

  // Cuts of about the least charge, one for most units of work. (A cut that leaves out a layer more than
  // 128 places before its last one in the order comes back with that layer inside.)
  std::optional<NodeSets> LightCuts(const CutCharges& charges);

  // How much the work inside a cut may differ from its units, over all cuts.
  struct Rounding {
    double least_s = 0;
    double most_s = 0;
  };
  std::optional<Rounding> WorkRounding();

 private:
  struct Values;
  struct States;

  std::optional<Values> Run(const CutCharges& charges, const std::vector<int>& units,
                            bool keeps_trails);
  States Place(int at, int units, const CutCharges& charges, const std::vector<int>& slot_of,
               uint64_t done, const States& states);

  const SortedGraph& graph_;
  TimeBudget& budget_;
  const std::vector<int> order_;
  std::vector<int> units_;  // by position
  double unit_s_ = 0;
  bool is_spent_ = false;
};

}  // namespace penstock
