// Models without kernels, for what must hold of a plan whatever its nodes compute.
//
// Plain values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "compute/op_kernels.h"
#include "model/graph.h"

namespace penstock {

// A model, and what kernels of its nodes could need.
struct PlannedModel {
  ModelGraph graph;
  std::vector<TapeNeeds> needs;  // by node

  // Adds a value, and returns its number. Ports come first.
  int AddPort(std::vector<int64_t> dims, DType dtype = DType::kF32);
  // A node in a layer of its own. Its parameters make it trained.
  int Add(std::vector<int> inputs, std::vector<int64_t> dims, bool has_parameters,
          const TapeNeeds& needs = {});
  // Freezes the parameters of the last node.
  void FreezeLast();
  // The last one.
  int AddLoss(std::vector<int> inputs, const TapeNeeds& needs = {});

  // Whether the gradient of an input is that of the node's output.
  bool PassesGradient(int node, size_t input) const {
    return (needs[node].passes_gradient >> input & 1) != 0;
  }
  std::vector<TapeNeeds> NeedsOf(LayerRange layers) const;
};

// Up to some twenty nodes, read in any order, some of them several times, in layers of one to three nodes.
PlannedModel RandomModel(uint64_t seed);

// The layers in stages of random sizes.
std::vector<LayerRange> RandomStages(const ModelGraph& graph, uint64_t seed);

}  // namespace penstock
