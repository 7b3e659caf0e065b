// PlanInput: what `penstock plan` is to cut into stages: a layer graph, from either kind of profile; and the
// workers that it is planned for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/cluster_spec.pb.h"
#include "planner/graph/cluster.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/placement.h"

namespace penstock {

struct PlanInput {
  LayerGraph graph;
  std::vector<LayerMemory> memory;  // by node, where the profile has measured it
  std::string what;                 // for people: "resnet50.txt, 176 layers"
};

// A file named .yaml or .yml is one that `penstock profile` wrote, of whose layers `samples` are the
// microbatch's (by default the largest that was measured); any other is PipeDream's graph.txt, without the nodes
// that load data and those that nobody reads.
//
// Errors: InvalidArgument with file and line (ReadModelProfile, ParsePipeDreamProfile), also if
// `samples` is given for a graph.txt or was not measured; those of reading the file.
absl::StatusOr<PlanInput> ReadPlanInput(const std::string& path, std::optional<int64_t> samples);

// REQUIRES: CheckClusterSpec is OK.
Cluster ClusterOf(const v1::ClusterSpec& spec);

}  // namespace penstock
