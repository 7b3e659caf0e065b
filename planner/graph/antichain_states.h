// Antichain states: the cuts that PipeDream's released optimizer considers, sized as it sizes them.
//
// Its states are the down-sets reached from the graph's first source by repeatedly adding a reader of something inside
// together with all that the reader needs. A state carries the outputs of its augmented antichain: the layers inside
// without a reader inside, and every ancestor p of such a layer a that has a reader which is neither a nor an ancestor
// of a. The latter also counts tensors whose readers are all inside, so some cuts look larger than they are
// (planner/graph/cuts.h has the true sizes).
//
// Pure functions. After Narayanan et al., SOSP'19, released as msr-fiddle/pipedream, graph/graph.py.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "planner/graph/cuts.h"

namespace penstock {

inline constexpr int64_t kAntichainStatesMax = 40'000;

// Returns the states and the empty cut. Errors: ResourceExhausted if there are more than `states_max`,
// FailedPrecondition if a layer is reached from no state.
absl::StatusOr<CutFamily> AntichainStates(const SortedGraph& graph,
                                          int64_t states_max = kAntichainStatesMax);

}  // namespace penstock
