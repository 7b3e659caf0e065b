// ModelGraph: a model as nodes in a stated order, cut into layers.
//
// A node is one op with its settings, inputs and parameters; it makes one value. A layer is a run of nodes, the unit
// of cut, profile, name and checkpoint; a stage is consecutive layers. Ports are values that are read from data where
// they are needed; they never travel between stages. What travels is a bundle (model/bundle.h): the values that layers
// before a cut made and layers behind it read.
//
// The description is device-neutral: the planner reads costs from it, compute/ builds kernels from it, checkpoints
// take names and shapes from it. GraphBuilder (model/graph_builder.h) makes one.
//
// Plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "model/attributes.h"
#include "model/op.h"

namespace penstock {

// The largest numbers. They bound memory and messages, and keep products of sizes within 64 bits.
inline constexpr int64_t kModelNodesMax = 2048 + 3;  // as many layers as a GPT may have
inline constexpr int64_t kModelPortsMax = 64;
inline constexpr int64_t kModelNameCharactersMax = 128;
inline constexpr int64_t kValueDimensionsMax = 8;
inline constexpr int64_t kModelParametersMax = int64_t{1} << 40;

struct Port {
  std::string name;  // "tokens", "targets", "image"
  ValueType type;
  int64_t ids =
      0;  // i32: entries are 0 to ids - 1; 0: what its readers allow (GraphBuilder fills it in), or any

  friend bool operator==(const Port&, const Port&) = default;
};

struct Node {
  std::string name;
  const Op* op = nullptr;
  Attributes attributes;    // complete
  std::vector<int> inputs;  // values: below ports.size() a port, else ports.size() + a node
  ValueType output;
  std::vector<ParameterSpec> parameters;
  std::vector<BufferSpec> buffers;
  bool needs_gradient = false;  // of its output: it trains parameters, or an input needs one
  // Names its random numbers, the same for every partition: its layer, and which of the layer's drawing nodes it is.
  uint32_t draw = 0;
  // Where its parameters' names come from (NodeSpec, graph_builder.h); of a fused node, from those that it stands for.
  std::string parameter_prefix;
  std::string weights_of;

  // Whether it has a parameter that is not frozen, and so a backward of its weights.
  bool trains() const;
  friend bool operator==(const Node&, const Node&) = default;
};

struct LayerSpec {
  std::string name;  // "embedding", "h.0.attention"
  // Its place in the model as it was described, by which checkpoints and digests know it in any order of the layers
  // (model/layer_order.h).
  int number = 0;
  int first_node = 0;
  int node_count = 0;
  std::vector<ParameterSpec> parameters;  // of its nodes, in order

  int end_node() const { return first_node + node_count; }
  int64_t parameter_count() const;
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// The consecutive layers [first, first + count) of a model.
struct LayerRange {
  int first = 0;
  int count = 0;
  int end() const { return first + count; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Parameters that several layers use, all of them at the same places. Each is one tensor; its gradient is the sum of
// those of its uses, added from the last use to the first, so that a cut anywhere changes no bit. All of them are frozen, or
// none: frozen ones have no gradient to add.
struct Tie {
  std::vector<int> uses;  // layers, ascending; one that uses them more than once is there as often
  std::vector<ParameterSpec> parameters;  // in the order of the first use

  // The layer whose parameters they are: checkpoints keep them with it, and its norm counts them.
  int owner() const { return uses.front(); }
  bool frozen() const { return parameters.front().frozen; }
  friend bool operator==(const Tie&, const Tie&) = default;
};

inline constexpr char kLayersArchitecture[] = "layers";  // of models that no family made

struct ModelGraph {
  std::string architecture;  // "gpt", "layers"
  std::vector<Port> ports;
  std::vector<Node> nodes;        // every node's inputs come before it; the last one is the loss
  std::vector<LayerSpec> layers;  // all nodes, in order
  std::vector<Tie> ties;          // in the order of their first uses (FindTies)
  bool untied = false;            // Untie gave uses of shared parameters their own

  int size() const { return static_cast<int>(layers.size()); }
  int values() const { return static_cast<int>(ports.size() + nodes.size()); }
  bool is_port(int value) const { return value < static_cast<int>(ports.size()); }
  // REQUIRES: not a port.
  int NodeOf(int value) const { return value - static_cast<int>(ports.size()); }
  int ValueOf(int node) const { return static_cast<int>(ports.size()) + node; }
  const ValueType& TypeOf(int value) const {
    return is_port(value) ? ports[value].type : nodes[NodeOf(value)].output;
  }
  const std::string& NameOf(int value) const {
    return is_port(value) ? ports[value].name : nodes[NodeOf(value)].name;
  }
  bool NeedsGradient(int value) const {
    return !is_port(value) && nodes[NodeOf(value)].needs_gradient;
  }
  std::vector<ValueType> InputTypes(const Node& node) const;
  int LayerOfNode(int node) const;
  // The fewest layers of the first of several stages: up to the first layer with parameters, because no gradient flows
  // back over a cut before it. REQUIRES: there are layers.
  int first_stage_layers_min() const;
  int stages_max() const { return size() - first_stage_layers_min() + 1; }

  // Parameters in all, a shared tensor counted once.
  int64_t parameter_count() const;
  bool tied() const { return !ties.empty(); }
  // The parameters of `layer` that belong to a layer before it, and to which.
  std::map<std::string, int> OwnersElsewhere(int layer) const;
  // REQUIRES: there are nodes.
  LossTraits loss() const;
  // In one sample, whether they count or not.
  int64_t targets_per_sample() const;
  // Whether a sample's targets are a sequence of classes, as the tokens of a text. Its loss then has a perplexity, unless
  // labels are smoothed, and work is counted in tokens. Of other models, such as one of images, it is counted in samples.
  bool has_tokens() const;
  // The first node of these layers with state that is carried from step to step (BufferSpec::kCarried); null: none.
  const Node* FindCarrying(LayerRange layers) const;
  const Node* FindCarrying() const { return FindCarrying({0, size()}); }
  // The value that holds them.
  int targets() const { return nodes.back().inputs[loss().targets]; }
  // The number that may stand in a port beside its ids, because the loss ignores it and nothing else reads the port.
  std::optional<int32_t> IgnoredIn(int port) const;

  friend bool operator==(const ModelGraph&, const ModelGraph&) = default;
};

// What several of these layers use.
std::vector<Tie> FindTies(absl::Span<const LayerSpec> layers);

// Gives every use of a shared parameter, but for the first, a parameter of its own: named after its node, with the
// same initial values (ParameterSpec::initial_as). From then on they are trained apart.
void Untie(ModelGraph& model);

// Of a layer, for one sample.
using LayerCost = OpCost;
LayerCost EstimateCost(const ModelGraph& model, const LayerSpec& layer);
// Of all layers together.
LayerCost EstimateCost(const ModelGraph& model);

}  // namespace penstock
