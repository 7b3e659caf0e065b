// Llama 2 and 3, Mistral, Qwen 2, 2.5 and 3: one architecture with options. RMSNorm before each branch, rotary positions,
// grouped-query attention, SwiGLU. Touvron et al., arXiv 2302.13971 and 2307.09288; Jiang et al., arXiv 2310.06825; Yang et
// al., arXiv 2407.10671 and 2505.09388.
//
// Parameters are named and laid out as those of Hugging Face's LlamaForCausalLM, which are those of the other two as well.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/graph.h"

namespace penstock {

inline constexpr char kLlamaArchitecture[] = "llama";  // of its graph

// Rotary positions, as of op rope.
struct RopeConfig {
  double base = 10000.0;
  std::string scaling = "none";  // none, linear, llama3
  double factor = 1.0;
  // Of llama3: frequencies are scaled by how often they turn within the original context.
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  int64_t original_context = 8192;
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

struct LlamaConfig {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t key_value_heads = 0;  // 0: as many as heads
  int64_t head_size = 0;        // 0: width / heads
  int64_t hidden = 0;           // of the MLP
  int64_t context = 0;          // of a sample
  int64_t vocabulary = 256;
  double epsilon = 1e-5;
  RopeConfig rope;
  bool qkv_bias = false;  // Qwen 2
  bool qk_norm = false;   // of each head of queries and keys: Qwen 3
  int64_t window = 0;     // keys that a query sees, its own included (Mistral); 0: all before it
  bool tied_head = false;
  friend bool operator==(const LlamaConfig&, const LlamaConfig&) = default;
};

// The model: embedding, then per block attention and mlp, final_norm, head: 2 * layers + 3 layers. Ports: `tokens` and
// `targets`, i32 [context]. Matrices begin normal with deviation 0.02.
//
// Errors: InvalidArgument starting with the field, then its value and what is allowed.
absl::StatusOr<ModelGraph> BuildLlama(const LlamaConfig& config);

}  // namespace penstock
