#include "planner/slice_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace penstock {
namespace {

constexpr float kNone = std::numeric_limits<float>::infinity();
constexpr size_t kStatesMax = 20'000;
constexpr int kSlotsMax = 30;
constexpr int kUnits = 16'384;        // of work, of the whole graph
constexpr double kFloatMargin = 1e-4;  // relative; above the rounding of any sum of floats here

// What a layer that still has readers to come may be; two bits of a state's key.
enum Status : uint64_t { kOutside = 0, kInside = 1, kCrossing = 2 };

uint64_t StatusIn(uint64_t key, int slot) { return (key >> (2 * slot)) & 3; }
uint64_t WithStatus(uint64_t key, int slot, uint64_t status) {
  return (key & ~(uint64_t{3} << (2 * slot))) | (status << (2 * slot));
}

// What a cut is charged for: a layer inside, and one inside with a reader outside. Minimised.
struct Charges {
  std::vector<double> inside;
  std::vector<double> crossing;
};

// The best value of all cuts so far, by units of work from `first` on.
struct Values {
  int first = 0;
  std::vector<float> best;

  // Takes what is better of `other`, moved by `units` of work and `charge`.
  void Merge(const Values& other, int units, float charge) {
    const int begin = other.first + units;
    const int end = begin + static_cast<int>(other.best.size());
    if (best.empty()) {
      first = begin;
    } else if (begin < first) {
      best.insert(best.begin(), first - begin, kNone);
      first = begin;
    }
    if (end > first + static_cast<int>(best.size())) best.resize(end - first, kNone);
    float* to = best.data() + (begin - first);
    const float* from = other.best.data();
    for (size_t at = 0; at < other.best.size(); ++at) to[at] = std::min(to[at], from[at] + charge);
  }
};

// A topological order in which few layers wait for readers: the next layer is the one that leaves the
// fewest waiting, of equals the one whose producers came last.
std::vector<int> NarrowOrder(const SortedGraph& graph) {
  std::vector<int> unread(graph.size());    // producers to come
  std::vector<int> readers(graph.size());   // to come
  std::vector<int> ready_since(graph.size());
  std::vector<int> ready;
  for (int position = 0; position < graph.size(); ++position) {
    unread[position] = static_cast<int>(graph.producers[position].size());
    readers[position] = static_cast<int>(graph.consumers[position].size());
    if (unread[position] == 0) ready.push_back(position);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const auto growth = [&](int position) {
      int waiting = readers[position] > 0 ? 1 : 0;
      for (const int producer : graph.producers[position]) waiting -= readers[producer] == 1;
      return waiting;
    };
    const auto next = std::min_element(ready.begin(), ready.end(), [&](int a, int b) {
      return std::pair(growth(a), -ready_since[a]) < std::pair(growth(b), -ready_since[b]);
    });
    const int position = *next;
    ready.erase(next);
    order.push_back(position);
    for (const int producer : graph.producers[position]) --readers[producer];
    for (const int consumer : graph.consumers[position]) {
      if (--unread[consumer] > 0) continue;
      ready_since[consumer] = static_cast<int>(order.size());
      ready.push_back(consumer);
    }
  }
  return order;
}

// How much the units of a cut may differ from its work, over all cuts.
struct Rounding {
  double least_s = 0;
  double most_s = 0;
};

class Programme {
 public:
  Programme(const SortedGraph& graph, TimeBudget& budget)
      : graph_(graph), budget_(budget), order_(NarrowOrder(graph)), units_(graph.size()) {
    const double work_s = std::accumulate(graph.work_s.begin(), graph.work_s.end(), 0.0);
    unit_s_ = work_s / kUnits;
    // Units by rounding the sums along the order, so that errors do not add up along it.
    double sum_s = 0;
    int sum_units = 0;
    for (const int position : order_) {
      sum_s += graph.work_s[position];
      const int units = unit_s_ > 0 ? static_cast<int>(std::lround(sum_s / unit_s_)) : 0;
      units_[position] = units - sum_units;
      sum_units = units;
    }
  }

  double unit_s() const { return unit_s_; }

  // The least charge of a cut, by units of work inside.
  std::optional<std::vector<float>> Solve(const Charges& charges) {
    absl::flat_hash_map<uint64_t, Values> states;
    states[0].best = {0};
    return Run(charges, units_, std::move(states));
  }

  // Over all cuts, by the same programme: of charges that are the errors, with no work at all.
  std::optional<Rounding> WorkRounding() {
    const std::vector<double> nothing(graph_.size());
    Charges errors{nothing, nothing};
    for (int position = 0; position < graph_.size(); ++position) {
      errors.inside[position] = graph_.work_s[position] - unit_s_ * units_[position];
    }
    const std::vector<int> no_units(graph_.size());
    absl::flat_hash_map<uint64_t, Values> states;
    states[0].best = {0};
    const auto least = Run(errors, no_units, states);
    for (double& error : errors.inside) error = -error;
    const auto most = Run(errors, no_units, std::move(states));
    if (!least.has_value() || !most.has_value()) return std::nullopt;
    const double margin_s = kFloatMargin * unit_s_ * graph_.size();
    return Rounding{least->front() - margin_s, -most->front() + margin_s};
  }

 private:
  std::optional<std::vector<float>> Run(const Charges& charges, const std::vector<int>& units,
                                        absl::flat_hash_map<uint64_t, Values> states) {
    std::vector<int> slot_of(graph_.size(), -1);
    std::vector<int> readers(graph_.size());
    std::vector<int> free_slots(kSlotsMax);
    std::iota(free_slots.rbegin(), free_slots.rend(), 0);
    for (const int position : order_) {
      readers[position] = static_cast<int>(graph_.consumers[position].size());
      if (readers[position] > 0) {
        if (free_slots.empty()) return std::nullopt;
        slot_of[position] = free_slots.back();
        free_slots.pop_back();
      }
      uint64_t done = 0;  // slots of layers without a reader to come
      for (const int producer : graph_.producers[position]) {
        if (--readers[producer] > 0) continue;
        done = WithStatus(done, slot_of[producer], 3);
        free_slots.push_back(slot_of[producer]);
      }
      states = Place(position, units[position], charges, slot_of, done, states);
      if (states.size() > kStatesMax || is_spent_) return std::nullopt;
    }
    Values& all = states.at(0);
    std::vector<float> best(all.first, kNone);
    best.insert(best.end(), all.best.begin(), all.best.end());
    return best;
  }

  // The states once a layer is inside or outside.
  absl::flat_hash_map<uint64_t, Values> Place(int position, int units, const Charges& charges,
                                              const std::vector<int>& slot_of, uint64_t done,
                                              const absl::flat_hash_map<uint64_t, Values>& states) {
    absl::flat_hash_map<uint64_t, Values> next;
    const int slot = slot_of[position];
    int64_t steps = 0;
    for (const auto& [key, values] : states) {
      bool may_be_inside = true;
      uint64_t key_outside = key;
      double crossing = 0;
      for (const int producer : graph_.producers[position]) {
        const uint64_t status = StatusIn(key, slot_of[producer]);
        if (status == kOutside) may_be_inside = false;
        if (status != kInside) continue;
        key_outside = WithStatus(key_outside, slot_of[producer], kCrossing);
        crossing += charges.crossing[producer];
      }
      if (slot >= 0) key_outside = WithStatus(key_outside & ~done, slot, kOutside);
      next[key_outside & ~done].Merge(values, 0, static_cast<float>(crossing));
      steps += static_cast<int64_t>(values.best.size());
      if (!may_be_inside) continue;
      uint64_t key_inside = key & ~done;
      if (slot >= 0) key_inside = WithStatus(key_inside, slot, kInside);
      next[key_inside].Merge(values, units, static_cast<float>(charges.inside[position]));
    }
    is_spent_ = is_spent_ || budget_.IsSpent(steps);
    return next;
  }

  const SortedGraph& graph_;
  TimeBudget& budget_;
  const std::vector<int> order_;
  std::vector<int> units_;  // by position
  double unit_s_ = 0;
  bool is_spent_ = false;
};

// The least of `values` over the units that a cut with work from `from_s` to `to_s` may have.
float LeastBetween(const std::vector<float>& values, double unit_s, const Rounding& rounding,
                   double from_s, double to_s) {
  const int first =
      std::max(0, static_cast<int>(std::floor((from_s - rounding.most_s) / unit_s)));
  const int last = std::min(static_cast<int>(values.size()) - 1,
                            static_cast<int>(std::ceil((to_s - rounding.least_s) / unit_s)));
  float least = kNone;
  for (int unit = first; unit <= last; ++unit) least = std::min(least, values[unit]);
  return least;
}

}  // namespace

std::optional<std::vector<CutFamily::Slice>> BoundSlices(const SortedGraph& graph, int slices,
                                                         TimeBudget& budget) {
  const std::vector<double> nothing(graph.size());
  std::vector<double> negative = graph.parameter_bytes;
  for (double& bytes : negative) bytes = -bytes;

  Programme programme(graph, budget);
  const double work_s = programme.unit_s() * kUnits;
  if (work_s <= 0) return std::nullopt;
  const auto rounding = programme.WorkRounding();
  const auto live = programme.Solve({nothing, graph.activation_bytes});
  const auto least_parameters = programme.Solve({graph.parameter_bytes, nothing});
  const auto most_parameters = programme.Solve({negative, nothing});
  if (!rounding.has_value() || !live.has_value() || !least_parameters.has_value() ||
      !most_parameters.has_value()) {
    return std::nullopt;
  }
  const double parameter_bytes =
      std::accumulate(graph.parameter_bytes.begin(), graph.parameter_bytes.end(), 0.0);
  const double parameter_margin = kFloatMargin * parameter_bytes;
  std::vector<CutFamily::Slice> bounds = {{}};
  for (int slice = 0; slice < slices; ++slice) {
    const double from_s = work_s * slice / slices;
    const double to_s = work_s * (slice + 1) / slices;
    const auto least = [&](const std::vector<float>& values) {
      return LeastBetween(values, programme.unit_s(), *rounding, from_s, to_s);
    };
    const float crossing = least(*live);
    if (crossing == kNone) continue;
    bounds.push_back({.least_work_s = from_s,
                      .most_work_s = to_s,
                      .least_parameter_bytes = least(*least_parameters) - parameter_margin,
                      .most_parameter_bytes = -least(*most_parameters) + parameter_margin,
                      .least_live_bytes = crossing * (1 - kFloatMargin)});
  }
  bounds.push_back({.least_work_s = work_s,
                    .most_work_s = work_s,
                    .least_parameter_bytes = parameter_bytes,
                    .most_parameter_bytes = parameter_bytes});
  return bounds;
}

}  // namespace penstock
