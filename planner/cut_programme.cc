#include "planner/cut_programme.h"

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

// What a layer that still has readers to come may be; two bits of a state's key.
enum Status : uint64_t { kOutside = 0, kInside = 1, kCrossing = 2 };

uint64_t StatusIn(uint64_t key, int slot) { return (key >> (2 * slot)) & 3; }
uint64_t WithStatus(uint64_t key, int slot, uint64_t status) {
  return (key & ~(uint64_t{3} << (2 * slot))) | (status << (2 * slot));
}

// The end of a cut in the order: its last layer, and which of the 128 up to it are inside.
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

// A topological order in which few layers wait for readers: the next layer is the one that leaves the
// fewest waiting, of equals the one whose producers came last.
std::vector<int> NarrowOrder(const SortedGraph& graph) {
  std::vector<int> unread(graph.size());   // producers to come
  std::vector<int> readers(graph.size());  // to come
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

}  // namespace

// The least charges of the cuts so far, by units of work from `first` on, and the cuts if kept.
struct CutProgramme::Values {
  int first = 0;
  std::vector<float> best;
  std::vector<Trail> trails;

  // Makes room for units from `begin` to `end`.
  void Cover(int begin, int end, bool keeps_trails) {
    if (best.empty()) first = begin;
    if (begin < first) {
      best.insert(best.begin(), first - begin, kNone);
      if (keeps_trails) trails.insert(trails.begin(), first - begin, Trail());
      first = begin;
    }
    if (end > first + static_cast<int>(best.size())) best.resize(end - first, kNone);
    if (keeps_trails) trails.resize(best.size());
  }

  // Takes what is better of `other`, moved by `units` and `charge`; with the layer `at` of the order, if
  // it is not negative.
  void Merge(const Values& other, int units, float charge, int at) {
    const bool keeps_trails = !other.trails.empty();
    const int begin = other.first + units;
    Cover(begin, begin + static_cast<int>(other.best.size()), keeps_trails);
    float* to = best.data() + (begin - first);
    const float* from = other.best.data();
    const size_t size = other.best.size();
    if (!keeps_trails) {
      for (size_t unit = 0; unit < size; ++unit) {
        to[unit] = std::min(to[unit], from[unit] + charge);
      }
      return;
    }
    for (size_t unit = 0; unit < size; ++unit) {
      if (!(from[unit] + charge < to[unit])) continue;
      to[unit] = from[unit] + charge;
      const Trail& trail = other.trails[unit];
      trails[begin - first + unit] = at < 0 ? trail : trail.With(at);
    }
  }
};

struct CutProgramme::States {
  absl::flat_hash_map<uint64_t, Values> by_key;

  // Ascending: which of two equal cuts is kept must not depend on the order of a hash table.
  std::vector<uint64_t> Keys() const {
    std::vector<uint64_t> keys;
    keys.reserve(by_key.size());
    for (const auto& [key, values] : by_key) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    return keys;
  }
};

CutProgramme::CutProgramme(const SortedGraph& graph, int units, TimeBudget& budget)
    : graph_(graph), budget_(budget), order_(NarrowOrder(graph)), units_(graph.size()) {
  unit_s_ = std::accumulate(graph.work_s.begin(), graph.work_s.end(), 0.0) / units;
  // Units by rounding the sums along the order, so that errors do not add up along it.
  double sum_s = 0;
  int sum_units = 0;
  for (const int position : order_) {
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
    for (int at = static_cast<int>(order_.size()) - 1; at >= 0; --at) {
      const int position = order_[at];
      if (values->trails[unit].Has(at)) SetBit(cut.data(), position);
      // Closed downwards, also where a layer far back is taken to be inside.
      if (!HasBit(cut.data(), position)) continue;
      for (const int producer : graph_.producers[position]) SetBit(cut.data(), producer);
    }
    cuts.Add(cut);
  }
  return cuts;
}

std::optional<CutProgramme::Rounding> CutProgramme::WorkRounding() {
  // The same programme, of charges that are the errors and without any work.
  CutCharges errors{std::vector<double>(graph_.size()), std::vector<double>(graph_.size())};
  for (int position = 0; position < graph_.size(); ++position) {
    errors.inside[position] = graph_.work_s[position] - unit_s_ * units_[position];
  }
  const std::vector<int> no_units(graph_.size());
  const std::optional<Values> least = Run(errors, no_units, /*keeps_trails=*/false);
  for (double& error : errors.inside) error = -error;
  const std::optional<Values> most = Run(errors, no_units, /*keeps_trails=*/false);
  if (!least.has_value() || !most.has_value()) return std::nullopt;
  const double margin_s = kChargeMargin * unit_s_ * graph_.size();
  return Rounding{least->best.front() - margin_s, -most->best.front() + margin_s};
}

std::optional<CutProgramme::Values> CutProgramme::Run(const CutCharges& charges,
                                                      const std::vector<int>& units,
                                                      bool keeps_trails) {
  States states;
  states.by_key[0] = {.best = {0}, .trails = std::vector<Trail>(keeps_trails ? 1 : 0)};
  std::vector<int> slot_of(graph_.size(), -1);
  std::vector<int> readers(graph_.size());  // to come
  std::vector<int> free_slots(kSlotsMax);
  std::iota(free_slots.rbegin(), free_slots.rend(), 0);
  for (int at = 0; at < static_cast<int>(order_.size()); ++at) {
    const int position = order_[at];
    readers[position] = static_cast<int>(graph_.consumers[position].size());
    if (readers[position] > 0) {
      if (free_slots.empty()) return std::nullopt;
      slot_of[position] = free_slots.back();
      free_slots.pop_back();
    }
    uint64_t done = 0;  // the bits of layers without a reader to come
    for (const int producer : graph_.producers[position]) {
      if (--readers[producer] > 0) continue;
      done = WithStatus(done, slot_of[producer], 3);
      free_slots.push_back(slot_of[producer]);
    }
    states = Place(at, units[position], charges, slot_of, done, states);
    if (states.by_key.size() > kStatesMax || is_spent_) return std::nullopt;
  }
  return std::move(states.by_key.at(0));
}

// The states once the layer `at` of the order is inside or outside.
CutProgramme::States CutProgramme::Place(int at, int units, const CutCharges& charges,
                                         const std::vector<int>& slot_of, uint64_t done,
                                         const States& states) {
  States next;
  const int position = order_[at];
  const int slot = slot_of[position];
  int64_t steps = 0;
  for (const uint64_t key : states.Keys()) {
    const Values& values = states.by_key.at(key);
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
    next.by_key[key_outside & ~done].Merge(values, 0, static_cast<float>(crossing), /*at=*/-1);
    steps += static_cast<int64_t>(values.best.size());
    if (!may_be_inside) continue;
    uint64_t key_inside = key & ~done;
    if (slot >= 0) key_inside = WithStatus(key_inside, slot, kInside);
    next.by_key[key_inside].Merge(values, units, static_cast<float>(charges.inside[position]), at);
  }
  is_spent_ = is_spent_ || budget_.IsSpent(steps);
  return next;
}

}  // namespace penstock
