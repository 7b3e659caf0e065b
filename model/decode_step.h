// DecodeStep: a language model as one time step of it, for texts that are made token by token, or as some, for the tokens that a
// text begins with.
//
// It has the parameters and layers of the model, so that it loads the same checkpoints. It reads tokens and their
// places in the text; what attention sees of earlier steps is kept by its nodes (op cached_attention), and what an LSTM
// hands on is carried. Both are laid out alike whatever the steps are. Logits are those of the model over the whole text, but for rounding.
//
// A pure function.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "model/graph.h"

namespace penstock {

// Ports: tokens and targets as the model has them, of `steps` time steps, and their places i32 [steps], below the model's time.
inline constexpr int kStepPlacePort = 2;

// Whether an op does the same to every time step, whatever the others are.
bool IsStepwise(const Op& op);

// Errors: Unimplemented (it does not read tokens and targets alone, or has a node that needs steps which are still to come, or of
// which it is not known), with the node's name.
// REQUIRES: 1 <= steps; no more than the model's time.
absl::StatusOr<ModelGraph> DecodeStepOf(const ModelGraph& model, int64_t steps = 1);

}  // namespace penstock
