// Layer order: a model's layers in another topological order.
//
// A stage is consecutive layers of the order, so the order decides which cuts there are, and what crosses them.
// Names, initial weights and random numbers are those of the layers and stay: of all numbers only the sums of
// gradients change, which run from a value's last reader to its first (compute/pass_plan.h).
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/graph.h"

namespace penstock {

// Returns the model with its layers in the order of `names`.
// Errors: InvalidArgument naming the layer: it is not of the model, there twice or missing, comes before one whose
// output it reads, or before the one whose parameters it shares.
absl::StatusOr<ModelGraph> InLayerOrder(const ModelGraph& model,
                                        absl::Span<const std::string> names);

// Returns the names of the layers as a job says them (pipeline.layer_order); empty where the order is the described
// one.
std::vector<std::string> LayerOrderOf(const ModelGraph& model);

}  // namespace penstock
