// GPT: the transformer of GPT-2. Pre-LayerNorm blocks, learned positions, GELU, tied or untied head.
// Radford et al., "Language models are unsupervised multitask learners", 2019.
#pragma once

#include "absl/status/statusor.h"
#include "model/chain.h"

namespace penstock {

struct GptConfig {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t context = 0;
  int64_t vocabulary = 256;
  double dropout = 0.0;
  bool tied_head = true;
};

// The chain: embedding, then per block attention and mlp, final_norm, head: 2 * layers + 3 layers.
// Projections into the residual stream start smaller by sqrt(2 * layers), as in GPT-2.
//
// Errors: InvalidArgument naming the field, its value and what is allowed (for example heads that do
// not divide the width).
absl::StatusOr<Chain> BuildGpt(const GptConfig& config);

}  // namespace penstock
