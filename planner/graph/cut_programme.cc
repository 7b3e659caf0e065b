#include "planner/graph/cut_programme.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "planner/graph/narrow_order.h"

namespace penstock {
namespace {

constexpr float kNone = std::numeric_limits<float>::infinity();

// Holds the end of a cut in the order: its last layer, and which of the 128 layers up to it are inside.
struct Trail {
  int last = -1;
  uint64_t near = 0;  // bit b: the layer b places before the last
  uint64_t far = 0;   // bit b: the layer 64 + b places before it

  Trail With(int at) const {
    const int by = at - last;
    Trail next{at, 1, 0};
    if (last < 0) return next;
    if (by < 64) {
      next.near |= near << by;
      next.far = (far << by) | (near >> (64 - by));
    } else if (by < 128) {
      next.far = near << (by - 64);
    }
    return next;
  }
  // Layers further back are taken to be inside.
  bool Has(int at) const {
    const int back = last - at;
    if (back < 0) return false;
    if (back >= 128) return true;
    return ((back < 64 ? near >> back : far >> (back - 64)) & 1) != 0;
  }
};

}  // namespace

// Holds the least charges of the cuts so far, by units of work from `first` to `end`, and the cuts if they are kept.
struct CutProgramme::Values {
  int first = 0;
  int end = 0;
  std::vector<float> best;
  std::vector<Trail> trails;

  void Cover(int from, int to) {
    first = end == 0 ? from : std::min(first, from);
    end = std::max(end, to);
  }

  // Takes the smaller charges of `other`, moved by `units` and `charge`, and adds the layer `at` of the order unless it
  // is negative. REQUIRES: all its units are covered.
  void Merge(const Values& other, int units, float charge, int at) {
    const int begin = other.first + units - first;
    float* to = best.data() + begin;
    const float* from = other.best.data();
    const size_t size = other.best.size();
    if (other.trails.empty()) {
      for (size_t unit = 0; unit < size; ++unit) {
        to[unit] = std::min(to[unit], from[unit] + charge);
      }
      return;
    }
    for (size_t unit = 0; unit < size; ++unit) {
      if (!(from[unit] + charge < to[unit])) continue;
      to[unit] = from[unit] + charge;
      const Trail& trail = other.trails[unit];
      trails[begin + unit] = at < 0 ? trail : trail.With(at);
    }
  }
};

// Crossing and Step describe what placing one layer does.
struct CutProgramme::Crossing {
  uint64_t inside;  // of a layer that it reads, PlacedLayer's bit
  double charge;
};
struct CutProgramme::Step {
  int at;  // in the order
  int units;
  double charge_inside;
  PlacedLayer layer;
  const std::vector<Crossing>& crossing;
};

// States are in the order in which they were reached, which depends on the graph alone.
struct CutProgramme::States {
  std::vector<uint64_t> keys;
  std::vector<Values> values;
  absl::flat_hash_map<uint64_t, int> index_of;

  int IndexOf(uint64_t key) {
    const auto [entry, is_new] = index_of.try_emplace(key, static_cast<int>(keys.size()));
    if (is_new) {
      keys.push_back(key);
      values.emplace_back();
    }
    return entry->second;
  }
};

CutProgramme::CutProgramme(const SortedGraph& graph, int units, TimeBudget& budget)
    : graph_(graph), budget_(budget), order_(NarrowOrder(graph, budget)), units_(graph.size()) {
  unit_s_ = std::accumulate(graph.work_s.begin(), graph.work_s.end(), 0.0) / units;
  // Rounding the sums along the order gives the units, so that errors do not add up along it.
  double sum_s = 0;
  int sum_units = 0;
  for (const int position : order_.value_or(std::vector<int>())) {
    sum_s += graph.work_s[position];
    const int rounded = unit_s_ > 0 ? static_cast<int>(std::lround(sum_s / unit_s_)) : 0;
    units_[position] = rounded - sum_units;
    sum_units = rounded;
  }
}

std::optional<std::vector<float>> CutProgramme::LeastCharges(const CutCharges& charges) {
  const std::optional<Values> values = Run(charges, units_, /*keeps_trails=*/false);
  if (!values.has_value()) return std::nullopt;
  std::vector<float> best(values->first, kNone);
  best.insert(best.end(), values->best.begin(), values->best.end());
  return best;
}

std::optional<NodeSets> CutProgramme::LightCuts(const CutCharges& charges) {
  const std::optional<Values> values = Run(charges, units_, /*keeps_trails=*/true);
  if (!values.has_value()) return std::nullopt;
  NodeSets cuts(graph_.size());
  for (size_t unit = 0; unit < values->best.size(); ++unit) {
    if (values->best[unit] == kNone) continue;
    std::vector<uint64_t> cut(cuts.words());
    for (int at = graph_.size() - 1; at >= 0; --at) {
      const int position = (*order_)[at];
      if (values->trails[unit].Has(at)) SetBit(cut.data(), position);
      // This closes the cut downwards, also where a layer far back is taken to be inside.
      if (!HasBit(cut.data(), position)) continue;
      for (const int producer : graph_.producers[position]) SetBit(cut.data(), producer);
    }
    cuts.Add(cut);
  }
  return cuts;
}

std::optional<CutProgramme::Rounding> CutProgramme::WorkRounding() {
  // This runs the same programme with the errors as charges and without any work.
  CutCharges errors{std::vector<double>(graph_.size()), std::vector<double>(graph_.size())};
  for (int position = 0; position < graph_.size(); ++position) {
    errors.inside[position] = graph_.work_s[position] - unit_s_ * units_[position];
  }
  const std::vector<int> no_units(graph_.size());
  const std::optional<Values> least = Run(errors, no_units, /*keeps_trails=*/false);
  for (double& error : errors.inside) error = -error;
  const std::optional<Values> most = Run(errors, no_units, /*keeps_trails=*/false);
  if (!least.has_value() || !most.has_value()) return std::nullopt;
  // No layer is off by more than a unit.
  const double margin_s = charge_margin() * unit_s_ * graph_.size();
  return Rounding{least->best.front() - margin_s, -most->best.front() + margin_s};
}

std::optional<CutProgramme::Values> CutProgramme::Run(const CutCharges& charges,
                                                      const std::vector<int>& units,
                                                      bool keeps_trails) {
  if (!order_.has_value()) return std::nullopt;
  States states;
  states.values[states.IndexOf(0)] = {
      .end = 1, .best = {0}, .trails = std::vector<Trail>(keeps_trails ? 1 : 0)};
  spare_.clear();
  WaitingLayers waiting(graph_);
  for (int at = 0; at < graph_.size(); ++at) {
    const int position = (*order_)[at];
    const std::optional<PlacedLayer> layer = waiting.Place(graph_, position);
    std::vector<Crossing> crossing;
    for (const int producer : graph_.producers[position]) {
      crossing.push_back({waiting.InsideBit(producer), charges.crossing[producer]});
    }
    states = Place({at, units[position], charges.inside[position], *layer, crossing}, states);
    if (is_spent_) return std::nullopt;
  }
  return std::move(states.values.front());
}

// Returns the states once one more layer is inside or outside. Leaves nothing of `states`.
CutProgramme::States CutProgramme::Place(const Step& step, States& states) {
  struct Move {
    int from;
    int to;
    int units;
    float charge;
    int at;
  };
  std::vector<Move> moves;
  States next;
  const auto move = [&](size_t from, uint64_t key, int by, double charge, int with) {
    const int to = next.IndexOf(key);
    const Values& values = states.values[from];
    next.values[to].Cover(values.first + by, values.end + by);
    moves.push_back({static_cast<int>(from), to, by, static_cast<float>(charge), with});
  };
  for (size_t state = 0; state < states.keys.size(); ++state) {
    const uint64_t key = states.keys[state];
    const uint64_t newly_crossing = step.layer.NewlyCrossing(key);
    double charge = 0;
    for (const Crossing& producer : step.crossing) {
      if ((newly_crossing & producer.inside) != 0) charge += producer.charge;
    }
    move(state, step.layer.Outside(key), 0, charge, /*with=*/-1);
    if (step.layer.MayBeInside(key)) {
      move(state, step.layer.Inside(key), step.units, step.charge_inside, step.at);
    }
  }

  const bool keeps_trails = !states.values.front().trails.empty();
  int64_t steps = 0;
  for (Values& values : next.values) {
    if (!spare_.empty()) {
      values.best = std::move(spare_.back());
      spare_.pop_back();
    }
    values.best.assign(values.end - values.first, kNone);
    if (keeps_trails) values.trails.resize(values.best.size());
    steps += static_cast<int64_t>(values.best.size());
  }
  for (const Move& move : moves) {
    next.values[move.to].Merge(states.values[move.from], move.units, move.charge, move.at);
  }
  for (Values& values : states.values) spare_.push_back(std::move(values.best));
  is_spent_ = is_spent_ || budget_.IsSpent(steps);
  return next;
}

}  // namespace penstock
