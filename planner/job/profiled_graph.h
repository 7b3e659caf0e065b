// ProfiledGraph: a measured model as the chain of layers that planner/ cuts.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/profile.pb.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/placement.h"

namespace penstock {

struct ProfiledGraph {
  LayerGraph graph;                 // each layer reads the one before
  std::vector<LayerMemory> memory;  // by node
};

// Returns the graph with microbatches of `samples`. REQUIRES: CheckModelProfile is OK.
// Errors: InvalidArgument where `samples` is below or above all that were measured.
absl::StatusOr<ProfiledGraph> GraphOfProfile(const v1::ModelProfile& profile, int64_t samples);

}  // namespace penstock
