// PlanInput: what `penstock plan` is to cut into stages: a layer graph, from either kind of profile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "planner/layer_graph.h"

namespace penstock {

struct PlanInput {
  LayerGraph graph;
  std::string what;  // for people: "resnet50.txt, 176 layers"
};

// A file named .yaml or .yml is one that `penstock profile` wrote, of whose layers `samples` are the
// microbatch's (by default the largest that was measured); any other is PipeDream's graph.txt, without the nodes
// that load data and those that nobody reads.
//
// Errors: InvalidArgument with file and line (ReadModelProfile, ParsePipeDreamProfile), also if
// `samples` is given for a graph.txt or was not measured; those of reading the file.
absl::StatusOr<PlanInput> ReadPlanInput(const std::string& path, std::optional<int64_t> samples);

}  // namespace penstock
