// CutStates: what a programme over the layers of a graph, in some topological order, must know of a cut.
//
// The layers that wait, those placed with readers still to come, decide whether the layers to come may be inside the
// cut, and what will cross it. Each is outside, inside, or crossing, which is inside with a reader outside. A state is
// these statuses, two bits for each, in one number.
//
// Plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/graph/cuts.h"

namespace penstock {

// Changes a state when one more layer is placed. Of the two bits of a status the lower says inside, the upper crossing;
// neither says outside.
struct PlacedLayer {
  uint64_t producers = 0;  // the lower bits of those that it reads
  uint64_t done = 0;       // both bits of those without a reader to come
  uint64_t own = 0;        // its own lower bit; zero if nothing reads it

  bool MayBeInside(uint64_t state) const { return ((state | state >> 1) & producers) == producers; }
  uint64_t Inside(uint64_t state) const { return (state & ~done) | own; }

  // Returns the lower bits of the layers that cross if this layer is outside, and did not before.
  uint64_t NewlyCrossing(uint64_t state) const { return state & producers; }
  uint64_t Outside(uint64_t state) const {
    const uint64_t crossing = NewlyCrossing(state);
    return ((state ^ crossing) | crossing << 1) & ~done;
  }
};

// Tracks which layers wait, and where in a state each has its two bits.
class WaitingLayers {
 public:
  explicit WaitingLayers(const SortedGraph& graph)
      : slot_of_(graph.size(), -1), readers_(graph.size()) {}

  // Places a layer, or returns nullopt if more than 30 wait. REQUIRES: all that the layer reads is placed, it is not.
  std::optional<PlacedLayer> Place(const SortedGraph& graph, int position);

  // Returns how many more wait once this layer is placed.
  int Growth(const SortedGraph& graph, int position) const;

  // Returns the lower bit of a layer's status, assigned when it was placed. REQUIRES: something reads it.
  uint64_t InsideBit(int position) const { return uint64_t{1} << (2 * slot_of_[position]); }

 private:
  std::vector<int8_t> slot_of_;  // by position
  std::vector<int> readers_;     // to come, of those placed
  uint32_t free_ = (uint32_t{1} << 30) - 1;
};

}  // namespace penstock
