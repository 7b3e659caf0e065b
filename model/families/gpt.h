// GPT: the transformer of GPT-2. Pre-LayerNorm blocks, learned positions, GELU, tied or untied head.
// Radford et al., "Language models are unsupervised multitask learners", 2019.
#pragma once

#include "absl/status/statusor.h"
#include "model/graph.h"

namespace penstock {

inline constexpr char kGptArchitecture[] = "gpt";  // of its graph

struct GptConfig {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t context = 0;
  int64_t vocabulary = 256;
  double dropout = 0.0;
  bool tied_head = true;
  bool untie =
      false;  // the head has a copy of its own, equal to the embedding at the start (Untie)
  double label_smoothing = 0.0;  // the share of each target that is spread over all tokens
  friend bool operator==(const GptConfig&, const GptConfig&) = default;
};

// The largest numbers. They bound memory and keep all byte counts far from overflow.
inline constexpr int64_t kGptLayersMax = 1024;
inline constexpr int64_t kGptWidthMax = 65536;
inline constexpr int64_t kGptContextMax = 65536;
inline constexpr int64_t kGptVocabularyMax = 1 << 24;
inline constexpr int64_t kGptParametersMax = int64_t{1} << 40;

// The model: embedding, then per block attention and mlp, final_norm, head: 2 * layers + 3 layers.
// Projections into the residual stream start smaller by sqrt(2 * layers), as in GPT-2.
//
// Errors: InvalidArgument starting with the field, then its value and what is allowed: "heads: is 5,
// which does not divide width (192)".
absl::StatusOr<ModelGraph> BuildGpt(const GptConfig& config);

}  // namespace penstock
