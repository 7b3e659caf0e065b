// WarmUpForwards: how many forwards 1F1B does before its first backward, where places may have replicas.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "schedule/topology.h"

namespace penstock {

// The moments at which the replicas of a place wait for each other.
enum class ReplicasMeet : uint8_t {
  kAtSteps,    // when the pipeline has drained
  kAtUpdates,  // while it runs on: once in a while, or after every backward
};

// By place: how many forwards each of its replicas does before its first backward, in a range that is long
// enough; S-1-s without replicas.
std::vector<int64_t> WarmUpForwards(absl::Span<const int32_t> replicas, ReplicasMeet meet);
// Does the same for one stage.
int64_t WarmUpForwardsOf(const Topology& topology, StageId stage, ReplicasMeet meet);

// By place: the microbatches between their forward and their backward there, its own left out, while the pipeline runs
// on. REQUIRES: `replicas` is not empty.
std::vector<int64_t> MicrobatchesAhead(absl::Span<const int32_t> replicas);

}  // namespace penstock
