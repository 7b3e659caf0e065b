// SeparateGpt: a GPT whose blocks are listed op by op, as a user lists them, with the names, parameters and random
// numbers of the family's.
#pragma once

#include <string>
#include <vector>

#include "model/families/gpt.h"
#include "model/graph.h"
#include "model/graph_builder.h"

namespace penstock {

// x + dropout(linear(attention(linear(layer_norm(x))))) and x + dropout(linear(gelu(linear(layer_norm(x))))), each node
// reading the one before; `input` is x. Parameters are called as in GPT-2, `prefix` before them.
std::vector<NodeSpec> AttentionBranchSpecs(const GptConfig& config, const std::string& prefix,
                                           const std::string& input);
std::vector<NodeSpec> MlpBranchSpecs(const GptConfig& config, const std::string& prefix,
                                     const std::string& input);

// REQUIRES: BuildGpt(config) is OK.
ModelGraph SeparateGpt(const GptConfig& config);

}  // namespace penstock
