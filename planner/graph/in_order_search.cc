#include "planner/graph/in_order_search.h"

#include <algorithm>
#include <map>
#include <utility>

namespace penstock {
namespace {

constexpr double kFirstStep = 0.01;  // of the least period there could be

// Runs one sweep for one period.
class Sweep {
 public:
  Sweep(const PlacementCosts& costs, const WorkerUnits& units, double period_s)
      : costs_(costs),
        family_(costs.family()),
        units_(units),
        period_s_(period_s),
        workers_from_(units.size() + 1),
        speed_before_(units.size() + 1) {
    for (size_t unit = 0; unit < units.size(); ++unit) {
      double speed = 0;
      for (const int worker : units[unit]) speed += costs.cluster().workers[worker].speed;
      speed_before_[unit + 1] = speed_before_[unit] + speed;
    }
    for (size_t unit = units.size(); unit-- > 0;) {
      workers_from_[unit] = workers_from_[unit + 1] + static_cast<int>(units[unit].size());
    }
  }

  std::optional<ClusterPlacement> Run(TimeBudget& budget) {
    const int last = family_.size() - 1;
    by_cut_.resize(family_.size());
    states_.push_back(
        {.cut = last, .first_unit = static_cast<int>(units_.size()), .loads = costs_.NoLoads()});
    by_cut_[last][{static_cast<int>(units_.size()), 0}] = 0;
    for (int to = last; to > 0; --to) {
      for (const auto& [place, state] : by_cut_[to]) {
        for (int from = to - 1; from >= 0; --from) {
          if (!family_.Inside(from, to)) continue;
          const double work_s = family_.StageWorkS(from, to);
          if (work_s > period_s_ * speed_before_[states_[state].first_unit]) break;
          if (budget.IsSpent(2'000)) return std::nullopt;
          Extend(state, from);
          if (from == 0 && found_ >= 0) return Trace();
        }
      }
    }
    return std::nullopt;
  }

 private:
  // The stages from `cut` on are on units from `first_unit` on.
  struct State {
    int cut = 0;
    int first_unit = 0;
    PlacedStage stage;  // the one that begins at `cut`
    PlacementCosts::Loads loads;
    int next = -1;  // the state with the stage behind it
  };

  // Puts a stage from `from` before the state's: on units that end where the state's begin.
  void Extend(int state, int from) {
    PlacedStage stage{.from_cut = from, .to_cut = states_[state].cut};
    const int end = states_[state].first_unit;
    const double work_s = family_.StageWorkS(from, stage.to_cut);
    const double rest_s = family_.work_s(from);
    for (int first = end - 1; first >= 0; --first) {
      stage.workers.insert(stage.workers.begin(), units_[first].begin(), units_[first].end());
      if (rest_s > period_s_ * speed_before_[first]) return;
      if (from > 0 && first == 0) return;
      if (work_s > period_s_ * (speed_before_[end] - speed_before_[first]) * (1 + 1e-9)) continue;
      Try(state, first, stage);
      if (found_ >= 0) return;
    }
  }

  void Try(int next, int first_unit, const PlacedStage& stage) {
    const std::optional<StageCharge> charge = costs_.ChargeStage(stage, workers_from_[first_unit]);
    if (!charge.has_value() || charge->compute_s + charge->sync_s > period_s_) return;
    PlacementCosts::Loads loads = states_[next].loads;
    costs_.AddSync(stage, loads);
    if (states_[next].next >= 0) costs_.AddBoundary(stage, states_[next].stage, loads);
    if (loads.most_s > period_s_) return;
    const std::pair<int, int> place = {first_unit, static_cast<int>(stage.workers.size())};
    int& known = by_cut_[stage.from_cut].try_emplace(place, -1).first->second;
    if (known >= 0 && states_[known].loads.most_s <= loads.most_s) return;
    known = static_cast<int>(states_.size());
    states_.push_back({.cut = stage.from_cut,
                       .first_unit = first_unit,
                       .stage = stage,
                       .loads = std::move(loads),
                       .next = next});
    if (stage.from_cut == 0) found_ = known;
  }

  ClusterPlacement Trace() const {
    ClusterPlacement placement;
    for (int state = found_; states_[state].next >= 0; state = states_[state].next) {
      placement.push_back(states_[state].stage);
    }
    return placement;
  }

  const PlacementCosts& costs_;
  const CutFamily& family_;
  const WorkerUnits& units_;
  const double period_s_;
  std::vector<int> workers_from_;     // by unit: in it and those behind
  std::vector<double> speed_before_;  // by unit: of those before it together
  std::vector<State> states_;
  // By cut, this holds the state of every place, which is its first unit and the workers of its first stage.
  std::vector<std::map<std::pair<int, int>, int>> by_cut_;
  int found_ = -1;
};

}  // namespace

std::optional<ClusterPlacement> SearchInOrder(const PlacementCosts& costs, const WorkerUnits& units,
                                              double must_beat_s, double tolerance,
                                              TimeBudget& budget) {
  double speed = 0;
  for (const std::vector<int>& unit : units) {
    for (const int worker : unit) speed += costs.cluster().workers[worker].speed;
  }
  // The search starts from below, since a sweep takes longer the more room the period leaves.
  double low_s = costs.family().work_s(costs.family().size() - 1) / speed * (1 - 1e-12);
  double high_s = must_beat_s * (1 - tolerance);
  double step_s = std::max(kFirstStep * low_s, 1e-6 * high_s);
  std::optional<ClusterPlacement> best;
  while (low_s < high_s * (1 - tolerance) && !budget.IsSpent(0)) {
    const double middle_s = (low_s + high_s) / 2;
    const double tried_s = best.has_value() ? middle_s : std::min(low_s + step_s, high_s);
    std::optional<ClusterPlacement> found = Sweep(costs, units, tried_s).Run(budget);
    if (found.has_value()) {
      high_s = std::min(tried_s, costs.Charge(*found).period_s);
      best = std::move(found);
      continue;
    }
    if (tried_s >= high_s) break;
    low_s = tried_s;
    step_s *= 2;
  }
  return best;
}

}  // namespace penstock
