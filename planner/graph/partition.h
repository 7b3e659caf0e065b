// Partition: where to cut a chain of layers into stages.
//
// A pipeline is as fast as its slowest stage, so the largest stage cost comes first. Among the cuts that reach its
// minimum the sum of the squared stage costs decides (the rest of the work is spread evenly), then the earlier cuts.
// The result is exact, by dynamic programming over prefixes of the chain.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace penstock {

// Returns the first layer of each of `stages` contiguous, non-empty stages; the first entry is 0. `layer_costs` are
// times of one microbatch in any unit. Takes O(stages * layers * w) time, where w layers make the longest stage that is
// no slower than the slowest one has to be.
//
// Errors: InvalidArgument if stages < 1, stages > layers, or a cost is negative or not finite.
absl::StatusOr<std::vector<int>> PartitionChain(absl::Span<const double> layer_costs, int stages);
// Does the same where stage s goes speeds[s] times as fast: that many workers hold it and do its microbatches in turn,
// or a faster one does. Errors: also a speed that is not above 0 and finite.
absl::StatusOr<std::vector<int>> PartitionChain(absl::Span<const double> layer_costs,
                                                absl::Span<const double> speeds);
// Does that where a stage may begin at the layers only whose entry in `may_begin` is true; the first is. Errors: also
// more stages than there are such layers.
absl::StatusOr<std::vector<int>> PartitionChain(absl::Span<const double> layer_costs,
                                                absl::Span<const double> speeds,
                                                const std::vector<bool>& may_begin);

}  // namespace penstock
