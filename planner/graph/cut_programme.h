// CutProgramme: for every amount of work, the cut with the least charge, without listing cuts.
//
// This is a dynamic programme over the layers in a narrow order (planner/graph/narrow_order.h). Each of its states
// (planner/graph/cut_states.h) has the least charge by units of work inside. Their number grows with the width of the
// order, not with the number of cuts: a few hundred for the published NASNets.
//
// It takes O(layers * states * units) time. Thread-compatible.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "planner/graph/cut_states.h"
#include "planner/graph/cuts.h"
#include "planner/graph/time_budget.h"

namespace penstock {

// Holds the charges of a cut by position: for a layer inside, and for one inside with a reader outside.
struct CutCharges {
  std::vector<double> inside;
  std::vector<double> crossing;
};

class CutProgramme {
 public:
  // Counts work in `units` parts of the graph's. `graph` and `budget` must outlive it.
  CutProgramme(const SortedGraph& graph, int units, TimeBudget& budget);

  double unit_s() const { return unit_s_; }
  // Allows one rounding for every layer, and one of its charge.
  double charge_margin() const {
    return graph_.size() * static_cast<double>(std::numeric_limits<float>::epsilon());
  }

  // Each of these returns no value when the budget ends or the graph is too wide for a narrow order.

  // Returns the least charge of all cuts by units of work inside, infinite where there is no cut. Sums are single
  // precision: they are off by at most charge_margin() of a cut's charges, added without their signs.
  std::optional<std::vector<float>> LeastCharges(const CutCharges& charges);

  // Returns cuts of about the least charge, one for most units of work. (A cut that leaves out a layer more than 128
  // places before its last one in the order comes back with that layer inside.)
  std::optional<NodeSets> LightCuts(const CutCharges& charges);

  // Bounds how much the work inside a cut differs from its units, over all cuts.
  struct Rounding {
    double least_s = 0;
    double most_s = 0;
  };
  std::optional<Rounding> WorkRounding();

 private:
  struct Crossing;
  struct States;
  struct Step;
  struct Values;

  std::optional<Values> Run(const CutCharges& charges, const std::vector<int>& units,
                            bool keeps_trails);
  States Place(const Step& step, States& states);

  const SortedGraph& graph_;
  TimeBudget& budget_;
  const std::optional<std::vector<int>> order_;
  std::vector<int> units_;  // by position
  double unit_s_ = 0;
  std::vector<std::vector<float>> spare_;  // of states that are done with
  bool is_spent_ = false;
};

}  // namespace penstock
