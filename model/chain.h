// Chain: a model as a sequence of named layers. Stages are consecutive layers of it.
//
// The description is device-neutral and small: the planner reads costs from it, compute/ builds
// kernels from it, checkpoints take names and shapes from it. Layers are fine-grained (a block's
// attention and its MLP are two layers), so that a partition can cut between any two.
//
// Every layer maps one activation [batch, time, width] to the next, except the first (token ids to
// activation) and the last (activation and target ids to a loss).
//
// Plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace penstock {

// One parameter tensor, named and laid out as in Hugging Face's GPT-2.
struct ParameterSpec {
  std::string name;            // "h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // a weight of a linear map is [inputs, outputs]
  enum class Init : uint8_t { kZeros, kOnes, kNormal } init = Init::kNormal;
  double init_deviation = 0.02;  // of kNormal
  bool decays = true;            // weight decay applies (matrices yes, biases and norms no)

  int64_t size() const;
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

// Token and position embedding: ids [batch, time] -> [batch, time, width], then dropout.
struct EmbeddingLayer {
  int64_t vocabulary, context, width;
  double dropout;
  friend bool operator==(const EmbeddingLayer&, const EmbeddingLayer&) = default;
};
// x + dropout(projection(causal attention(LayerNorm(x)))).
struct AttentionLayer {
  int64_t width, heads;
  double dropout;
  friend bool operator==(const AttentionLayer&, const AttentionLayer&) = default;
};
// x + dropout(projection(GELU(expansion(LayerNorm(x))))), GELU in its tanh form as GPT-2 has it.
struct MlpLayer {
  int64_t width, hidden;
  double dropout;
  friend bool operator==(const MlpLayer&, const MlpLayer&) = default;
};
struct NormLayer {
  int64_t width;
  friend bool operator==(const NormLayer&, const NormLayer&) = default;
};
// Logits and mean cross-entropy. When tied, its weight is the embedding's "wte.weight".
struct HeadLayer {
  int64_t vocabulary, width;
  bool tied;
  friend bool operator==(const HeadLayer&, const HeadLayer&) = default;
};

using LayerConfig = std::variant<EmbeddingLayer, AttentionLayer, MlpLayer, NormLayer, HeadLayer>;

struct LayerSpec {
  std::string name;  // "embedding", "h.0.attention", "h.0.mlp", "final_norm", "head"
  LayerConfig config;
  std::vector<ParameterSpec> parameters;

  int64_t parameter_count() const;
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

struct Chain {
  std::string architecture;  // "gpt"
  int64_t context = 0;       // time steps per sample
  int64_t width = 0;         // of every boundary activation
  int64_t vocabulary = 0;
  std::vector<LayerSpec> layers;

  int size() const { return static_cast<int>(layers.size()); }
  // Parameters in all, a tied tensor counted once.
  int64_t parameter_count() const;
  // True if the head's weight is the embedding's.
  bool tied() const;

  friend bool operator==(const Chain&, const Chain&) = default;
};

// The consecutive layers [first, first + count) of a chain.
struct LayerRange {
  int first = 0;
  int count = 0;
  int end() const { return first + count; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Multiply-adds counted as two operations, for one sample of `context` time steps.
struct LayerCost {
  double forward_flops = 0;
  double backward_input_flops = 0;
  double backward_weight_flops = 0;
};
LayerCost EstimateCost(const Chain& chain, const LayerSpec& layer);

}  // namespace penstock
