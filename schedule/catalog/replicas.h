// 1F1B where places have replicas: how many forwards come first, and the order that follows.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "schedule/catalog/schedules.h"

namespace penstock {

// The moments at which the replicas of a place wait for each other.
enum class ReplicasMeet : uint8_t {
  kAtSteps,    // when the pipeline has drained
  kAtUpdates,  // after every backward
};

// By place: how many forwards each of its replicas does before its first backward, in a range that is long
// enough; S-1-s without replicas.
std::vector<int64_t> WarmUpForwards(absl::Span<const int32_t> replicas, ReplicasMeet meet);
// Does the same for one stage.
int64_t WarmUpForwardsOf(const Topology& topology, StageId stage, ReplicasMeet meet);

// PipeDream on replicas (1F1B-RR), without end: each replica has a forward and a backward in turn, and an
// update after every backward. REQUIRES: the range is a multiple of the topology's cycle.
Program RoundRobinOneFOneB(const Topology& topology, StageId stage, MicrobatchRange range);

}  // namespace penstock
