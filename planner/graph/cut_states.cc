#include "planner/graph/cut_states.h"

#include <bit>

namespace penstock {

std::optional<PlacedLayer> WaitingLayers::Place(const SortedGraph& graph, int position) {
  PlacedLayer placed;
  readers_[position] = static_cast<int>(graph.consumers[position].size());
  if (readers_[position] > 0) {
    if (free_ == 0) return std::nullopt;
    const int slot = std::countr_zero(free_);
    free_ &= free_ - 1;
    slot_of_[position] = static_cast<int8_t>(slot);
    placed.own = uint64_t{1} << (2 * slot);
  }
  for (const int producer : graph.producers[position]) {
    const uint64_t inside = uint64_t{1} << (2 * slot_of_[producer]);
    placed.producers |= inside;
    if (--readers_[producer] > 0) continue;
    placed.done |= 3 * inside;
    free_ |= uint32_t{1} << slot_of_[producer];
  }
  return placed;
}

int WaitingLayers::Growth(const SortedGraph& graph, int position) const {
  int growth = graph.consumers[position].empty() ? 0 : 1;
  for (const int producer : graph.producers[position]) growth -= readers_[producer] == 1;
  return growth;
}

}  // namespace penstock
