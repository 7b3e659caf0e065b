// Adds low-rank adapters (model/lora.h) to the weights that they are beside, so that the model without adapters computes the
// same, and other programs can read it.
//
// A pure function.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/stage.h"
#include "model/lora.h"

namespace penstock {

// Returns `weights` without the adapters' arrays, and with W + scale B A in the place of each W that has one, summed in
// double. `adapters`: those whose arrays are there (FindAdapters).
// Errors: InvalidArgument naming an array that is missing or whose shape does not fit.
absl::StatusOr<std::vector<NamedArray>> MergeLora(absl::Span<const LoraAdapter> adapters,
                                                  std::vector<NamedArray> weights);

}  // namespace penstock
