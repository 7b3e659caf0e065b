#include "planner/graph/narrow_order.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "planner/graph/cut_states.h"

namespace penstock {
namespace {

constexpr size_t kStatesMax = 20'000;  // of one place in an order

// The search looks at this many orders together, and at this many ways to go on with each.
constexpr size_t kOrders = 12;
constexpr size_t kNexts = 8;
// A layer that makes few states now often makes many later, so its own states count this many times more.
constexpr int kFutureSteps = 3;

// Holds the beginning of an order.
struct Beginning {
  std::vector<int> order;
  std::vector<uint64_t> placed;  // as a set of positions
  WaitingLayers waiting;
  std::vector<int> unread;  // by position: producers to come
  std::vector<int> ready;   // may come next, the latest to become so last
  std::vector<uint64_t> states;
  int64_t states_sum = 0;  // of all places so far

  int64_t Cost() const { return states_sum + kFutureSteps * static_cast<int64_t>(states.size()); }
};

Beginning Nothing(const SortedGraph& graph) {
  Beginning nothing{.placed = std::vector<uint64_t>((graph.size() + 63) / 64),
                    .waiting = WaitingLayers(graph),
                    .states = {0}};
  for (int position = 0; position < graph.size(); ++position) {
    nothing.unread.push_back(static_cast<int>(graph.producers[position].size()));
    if (nothing.unread.back() == 0) nothing.ready.push_back(position);
  }
  return nothing;
}

// Returns the next layers that leave the fewest layers waiting, of equals the latest.
std::vector<int> BestNexts(const SortedGraph& graph, const Beginning& beginning) {
  std::vector<std::tuple<int, int, int>> ranked;
  for (size_t at = 0; at < beginning.ready.size(); ++at) {
    const int position = beginning.ready[at];
    ranked.emplace_back(beginning.waiting.Growth(graph, position), -static_cast<int>(at), position);
  }
  const size_t kept = std::min(kNexts, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<int64_t>(kept), ranked.end());
  std::vector<int> nexts;
  for (size_t at = 0; at < kept; ++at) nexts.push_back(std::get<2>(ranked[at]));
  return nexts;
}

// Returns the beginning with one more layer, or nullopt if the graph is too wide here.
std::optional<Beginning> With(const SortedGraph& graph, const Beginning& before, int position) {
  Beginning next{.order = before.order,
                 .placed = before.placed,
                 .waiting = before.waiting,
                 .unread = before.unread,
                 .ready = before.ready};
  const std::optional<PlacedLayer> layer = next.waiting.Place(graph, position);
  if (!layer.has_value()) return std::nullopt;
  for (const uint64_t state : before.states) {
    next.states.push_back(layer->Outside(state));
    if (layer->MayBeInside(state)) next.states.push_back(layer->Inside(state));
  }
  std::sort(next.states.begin(), next.states.end());
  next.states.erase(std::unique(next.states.begin(), next.states.end()), next.states.end());
  if (next.states.size() > kStatesMax) return std::nullopt;
  next.states_sum = before.states_sum + static_cast<int64_t>(next.states.size());

  next.order.push_back(position);
  SetBit(next.placed.data(), position);
  std::erase(next.ready, position);
  for (const int consumer : graph.consumers[position]) {
    if (--next.unread[consumer] == 0) next.ready.push_back(consumer);
  }
  return next;
}

}  // namespace

std::optional<std::vector<int>> NarrowOrder(const SortedGraph& graph, TimeBudget& budget) {
  std::vector<Beginning> beginnings = {Nothing(graph)};
  for (int placed = 0; placed < graph.size(); ++placed) {
    struct Choice {
      int64_t states_sum;
      size_t beginning;
      int next;
    };
    // How many states there are depends on the layers placed, not on their order.
    std::vector<Choice> choices;
    absl::flat_hash_map<std::vector<uint64_t>, size_t> choice_of;
    for (size_t at = 0; at < beginnings.size(); ++at) {
      for (const int next : BestNexts(graph, beginnings[at])) {
        std::vector<uint64_t> set = beginnings[at].placed;
        SetBit(set.data(), next);
        const Choice choice{beginnings[at].states_sum, at, next};
        const auto [entry, is_new] = choice_of.try_emplace(std::move(set), choices.size());
        if (is_new) {
          choices.push_back(choice);
        } else if (choice.states_sum < choices[entry->second].states_sum) {
          choices[entry->second] = choice;
        }
      }
    }

    std::vector<Beginning> longer;
    size_t steps = 0;
    for (const Choice& choice : choices) {
      std::optional<Beginning> next = With(graph, beginnings[choice.beginning], choice.next);
      if (next.has_value()) longer.push_back(*std::move(next));
      // Fewer choices must do in wide graphs.
      steps += beginnings[choice.beginning].states.size();
      if (steps > kStatesMax && !longer.empty()) break;
    }
    if (longer.empty() || budget.IsSpent(static_cast<int64_t>(10 * steps))) return std::nullopt;
    std::stable_sort(longer.begin(), longer.end(),
                     [](const Beginning& a, const Beginning& b) { return a.Cost() < b.Cost(); });
    if (longer.size() > kOrders) longer.resize(kOrders, Nothing(graph));
    beginnings = std::move(longer);
  }
  return std::move(beginnings.front().order);
}

}  // namespace penstock
