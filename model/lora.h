// LoRA: low-rank adapters beside linear maps (Hu et al., arXiv 2106.09685).
//
//     y = W x + b    becomes    y = W x + b + (alpha / rank) B (A dropout(x))
//
// with A [rank, inputs], drawn as PEFT does (Kaiming uniform with a = sqrt(5), which is uniform below 1 / sqrt(inputs)), and
// B [outputs, rank] of zeros, so that training starts where the model was. They are called as in PEFT's files: those of
// h.0.attn.c_attn.weight are h.0.attn.c_attn.lora_A.weight and h.0.attn.c_attn.lora_B.weight. Maps that share a weight share
// its adapter. A residual branch that is one op is taken apart where a linear map in it gets an adapter.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/graph.h"

namespace penstock {

struct LoraConfig {
  int64_t rank = 8;
  double alpha = 16.0;
  double dropout = 0.0;
  std::vector<std::string> targets;  // patterns (base/glob.h) of linear maps' names
};

// The linear maps that can have an adapter, each once: the names of their weights without ".weight".
std::vector<std::string> LinearMaps(const ModelGraph& model);

// Returns the model with an adapter for each linear map that a target matches. Layers, values that cross between them and the
// names of all other parameters stay. REQUIRES: the uses of shared weights have not been untied (Untie comes after it).
// Errors: InvalidArgument if the model would have too many nodes or parameters, or has one of these names already.
absl::StatusOr<ModelGraph> AddLora(const ModelGraph& model, const LoraConfig& config);

// An adapter of a model: what it takes to add it to its linear map's weight.
struct LoraAdapter {
  std::string map;             // "h.0.attn.c_attn"
  double scale = 1.0;          // alpha / rank
  bool outputs_first = false;  // whether the weight is [outputs, inputs]
  friend bool operator==(const LoraAdapter&, const LoraAdapter&) = default;
};
// Each once, in the order of the model.
std::vector<LoraAdapter> FindAdapters(const ModelGraph& model);

inline constexpr char kLoraA[] = "lora_A.weight";
inline constexpr char kLoraB[] = "lora_B.weight";

}  // namespace penstock
