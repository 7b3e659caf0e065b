// ProfiledGraph: a measured model as the graph of layers that planner/ cuts.
//
// A cut of it carries what crosses the same cut of the model (model/bundle.h), but for padding between values whose
// elements are no multiple of 16.
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
  // The layers of the profile, in its order. Behind them, where a layer makes several values that others read, a node
  // without work for each of these, which its readers read: a node has one output, and each value crosses up to its own
  // last reader. The layer's own output is then all of them, so that no cut gains by leaving one behind.
  LayerGraph graph;
  int layers = 0;
  std::vector<LayerMemory> memory;  // by node
};

// Returns the graph with microbatches of `samples`. REQUIRES: CheckModelProfile is OK.
// Errors: InvalidArgument where `samples` is below or above all that were measured.
absl::StatusOr<ProfiledGraph> GraphOfProfile(const v1::ModelProfile& profile, int64_t samples);

}  // namespace penstock
