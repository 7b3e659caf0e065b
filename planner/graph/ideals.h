// Ideals: listing the cuts of a layer graph, all of them or the best of each size.
//
// The number of cuts (down-sets, the ideals of the order of layers) is the number of layers plus one for a chain and
// exponential in the width of a graph with branches: 241 for the published ResNet-50, 16,887 for GNMT-16, more than a
// million for the NASNets. They are listed up to a limit; beyond it, a beam keeps for every number of layers the cuts
// with the fewest live bytes, between which a pipeline would be cut anyway.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/status/statusor.h"
#include "planner/graph/cuts.h"

namespace penstock {

struct IdealLimits {
  int64_t ideals_max = 40'000;
  // At most this many cuts of each number of layers are kept, the ones with the fewest live bytes.
  int per_size_max = std::numeric_limits<int>::max();
};

// The family is complete if per_size_max left nothing out. Takes O(ideals * (layers + edges)) time.
// Errors: ResourceExhausted if there are more than ideals_max.
absl::StatusOr<CutFamily> EnumerateIdeals(const SortedGraph& graph, const IdealLimits& limits);

}  // namespace penstock
