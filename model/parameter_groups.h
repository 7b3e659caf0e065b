// Parameter groups: which parameters are trained, and how, by patterns of their names.
//
// Everything that follows from it is read from the graph: what kernels compute, what memory and checkpoints hold, what a
// profile measures and a plan counts with.
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/graph.h"

namespace penstock {

struct ParameterGroup {
  std::string pattern;  // of parameters' names (base/glob.h)
  double rate_scale = 1.0;
  std::optional<double> weight_decay;
  bool frozen = false;
};

// Gives every parameter what the first group whose pattern its name matches says; those that match none stay as they are.
// Then no gradient is computed that nobody needs: of frozen parameters, and of values before the first trained one.
// Errors: InvalidArgument if nothing is left to train.
absl::Status ApplyGroups(absl::Span<const ParameterGroup> groups, ModelGraph& model);

// The names of all parameters, each once, in the order of the model.
std::vector<std::string> ParameterNames(const ModelGraph& model);

}  // namespace penstock
