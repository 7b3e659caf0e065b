// Documents: a language model that reads several documents in a row of tokens as if each had a row of its own.
//
// The model gets a port, `positions` i32 [time]: the place of each token in its document, 0 where one begins. Rotary positions
// turn by it, and attention sees nothing before the last 0. All other ops do the same to every time step.
//
// Pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "model/graph.h"

namespace penstock {

inline constexpr char kPositionsPort[] = "positions";

// The port's number; -1: the model has none.
int FindPositionsPort(const ModelGraph& model);

// Returns the model with the port, behind its others. Parameters and layers stay.
// Errors: Unimplemented naming the node (one that is not known to keep documents apart, such as learned positions).
absl::StatusOr<ModelGraph> SeparateDocuments(const ModelGraph& model);

// Returns the model without it, for a row that is one document, as texts that are generated are. One that has other readers of
// the port stays as it is.
ModelGraph JoinDocuments(const ModelGraph& model);

}  // namespace penstock
