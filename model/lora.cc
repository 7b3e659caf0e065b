#include "model/lora.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/glob.h"
#include "base/status.h"
#include "model/graph_builder.h"
#include "model/ops/branch.h"
#include "model/ops/list.h"

namespace penstock {
namespace {

constexpr char kWeight[] = "weight";
// Of a branch's parameters: gain and bias of its norm, weight and bias of both linear maps.
constexpr size_t kNorm = 0, kExpansion = 2, kProjection = 4;

bool IsBranch(const Node& node) {
  return node.op == &ops::kAttentionBranch || node.op == &ops::kMlpBranch;
}

// Where the weights of a node's linear maps are among its parameters.
std::vector<size_t> LinearWeights(const Node& node) {
  if (node.op == &ops::kLinear) return {0};
  return IsBranch(node) ? std::vector<size_t>{kExpansion, kProjection} : std::vector<size_t>();
}

// "h.0.attn.c_attn." of "h.0.attn.c_attn.weight".
std::string PrefixOf(const ParameterSpec& weight) {
  return std::string(absl::StripSuffix(weight.name, kWeight));
}

std::string MapOf(const ParameterSpec& weight) {
  return std::string(absl::StripSuffix(PrefixOf(weight), "."));
}

// Builds the model again, with more nodes.
class Adapting {
 public:
  Adapting(const ModelGraph& model, const LoraConfig& config)
      : model_(model), config_(config), builder_(kLayersArchitecture) {}

  absl::StatusOr<ModelGraph> Build() && {
    for (const Port& port : model_.ports) builder_.AddPort(port);
    for (const LayerSpec& layer : model_.layers) {
      builder_.BeginLayer(layer.name);
      for (int n = layer.first_node; n < layer.end_node(); ++n) Add(model_.nodes[n]);
      PENSTOCK_RETURN_IF_ERROR(builder_.status());
    }
    return std::move(builder_).Build();
  }

 private:
  bool IsTarget(const ParameterSpec& weight) const {
    return std::any_of(
        config_.targets.begin(), config_.targets.end(),
        [&](const std::string& pattern) { return MatchesGlob(pattern, MapOf(weight)); });
  }

  void Add(const Node& node) {
    const std::vector<size_t> weights = LinearWeights(node);
    const bool adapts = std::any_of(weights.begin(), weights.end(),
                                    [&](size_t p) { return IsTarget(node.parameters[p]); });
    if (!adapts) return builder_.Add(SpecOf(node));
    if (IsBranch(node)) return AddBranch(node);
    NodeSpec linear = SpecOf(node);
    adapted_[node.name] = node.name + ".base";
    AddLinear(std::move(linear), node.parameters.front());
  }

  NodeSpec SpecOf(const Node& node) const {
    NodeSpec spec = {.name = node.name,
                     .op = std::string(node.op->name),
                     .attributes = node.attributes,
                     .parameter_prefix = node.parameter_prefix,
                     .weights_of = node.weights_of};
    for (const int input : node.inputs) spec.inputs.push_back(model_.NameOf(input));
    const auto adapted = adapted_.find(node.weights_of);
    if (adapted != adapted_.end()) spec.weights_of = adapted->second;
    return spec;
  }

  // A linear map and, if it is a target, its adapter; the value is called as `linear` is.
  void AddLinear(NodeSpec linear, const ParameterSpec& weight) {
    if (!IsTarget(weight)) return builder_.Add(std::move(linear));
    const std::string name = linear.name, input = linear.inputs.front();
    const int64_t outputs = linear.attributes.integer("outputs");
    linear.name = name + ".base";
    builder_.Add(std::move(linear));
    std::string read = input;
    if (config_.dropout > 0.0) {
      read = name + ".lora_dropout";
      builder_.Add({.name = read,
                    .op = "dropout",
                    .attributes = {{"probability", config_.dropout}},
                    .inputs = {input}});
    }
    AddFactor(name + ".lora_A", read, config_.rank, "uniform", PrefixOf(weight) + "lora_A.");
    AddFactor(name + ".lora_B", name + ".lora_A", outputs, "zeros", PrefixOf(weight) + "lora_B.");
    builder_.Add({.name = name + ".lora",
                  .op = "scale",
                  .attributes = {{"factor", config_.alpha / static_cast<double>(config_.rank)}},
                  .inputs = {name + ".lora_B"}});
    builder_.Add({.name = name, .op = "add", .inputs = {name + ".base", name + ".lora"}});
  }

  void AddFactor(std::string name, std::string input, int64_t outputs, const char* init,
                 std::string prefix) {
    builder_.Add(
        {.name = std::move(name),
         .op = "linear",
         .attributes = {{"outputs", outputs}, {"bias", false}, {"init", std::string(init)}},
         .inputs = {std::move(input)},
         .parameter_prefix = std::move(prefix)});
  }

  void AddBranch(const Node& node) {
    const Attributes& a = node.attributes;
    const std::string name = node.name, input = model_.NameOf(node.inputs.front());
    const bool attends = node.op == &ops::kAttentionBranch;
    builder_.Add({.name = name + ".norm",
                  .op = "layer_norm",
                  .attributes = {{"width", a.integer("width")}, {"epsilon", ops::kBranchEpsilon}},
                  .inputs = {input},
                  .parameter_prefix = PrefixOf(node.parameters[kNorm])});
    AddLinear(LinearOf(node, kExpansion, ".expansion", ".norm", "deviation"),
              node.parameters[kExpansion]);
    NodeSpec middle = {.name = name + ".middle", .inputs = {name + ".expansion"}};
    middle.op = attends ? "attention" : "gelu";
    if (attends) {
      middle.attributes = {{"heads", a.integer("heads")}, {"causal", true}};
    } else {
      middle.attributes = {{"approximate", std::string("tanh")}};
    }
    builder_.Add(std::move(middle));
    AddLinear(LinearOf(node, kProjection, ".projection", ".middle", "projection_deviation"),
              node.parameters[kProjection]);
    std::string last = name + ".projection";
    if (a.number("dropout") > 0.0) {
      builder_.Add({.name = name + ".dropout",
                    .op = "dropout",
                    .attributes = {{"probability", a.number("dropout")}},
                    .inputs = {last}});
      last = name + ".dropout";
    }
    builder_.Add({.name = name, .op = "add", .inputs = {input, last}});
  }

  NodeSpec LinearOf(const Node& branch, size_t weight, const char* name, const char* input,
                    const char* deviation) const {
    const Attributes& a = branch.attributes;
    return {.name = branch.name + name,
            .op = "linear",
            .attributes = {{"outputs", branch.parameters[weight + 1].size()},
                           {"layout", a.word("layout")},
                           {"init", std::string("normal")},
                           {"deviation", a.number(deviation)}},
            .inputs = {branch.name + input},
            .parameter_prefix = PrefixOf(branch.parameters[weight])};
  }

  const ModelGraph& model_;
  const LoraConfig& config_;
  GraphBuilder builder_;
  std::map<std::string, std::string> adapted_;  // linear nodes, and what holds their weights now
};

// The factor of the node that reads a value alone and scales it.
double ScaleOf(const ModelGraph& model, int value) {
  for (const Node& node : model.nodes) {
    if (node.op == &ops::kScale && node.inputs.front() == value) {
      return node.attributes.number("factor");
    }
  }
  return 1.0;
}

}  // namespace

std::vector<std::string> LinearMaps(const ModelGraph& model) {
  std::vector<std::string> maps;
  for (const Node& node : model.nodes) {
    for (const size_t p : LinearWeights(node)) {
      std::string map = MapOf(node.parameters[p]);
      if (std::find(maps.begin(), maps.end(), map) == maps.end()) maps.push_back(std::move(map));
    }
  }
  return maps;
}

absl::StatusOr<ModelGraph> AddLora(const ModelGraph& model, const LoraConfig& config) {
  return Adapting(model, config).Build();
}

std::vector<LoraAdapter> FindAdapters(const ModelGraph& model) {
  std::vector<LoraAdapter> adapters;
  for (size_t n = 0; n < model.nodes.size(); ++n) {
    const Node& node = model.nodes[n];
    if (node.op != &ops::kLinear || !absl::EndsWith(node.parameters.front().name, kLoraB)) continue;
    LoraAdapter adapter = {.scale = ScaleOf(model, model.ValueOf(static_cast<int>(n)))};
    adapter.map = std::string(
        absl::StripSuffix(absl::StripSuffix(node.parameters.front().name, kLoraB), "."));
    for (const Node& base : model.nodes) {
      const bool is_base =
          base.op == &ops::kLinear && MapOf(base.parameters.front()) == adapter.map;
      if (is_base) adapter.outputs_first = base.attributes.word("layout") == "outputs_first";
    }
    const bool known = std::any_of(adapters.begin(), adapters.end(), [&](const LoraAdapter& other) {
      return other.map == adapter.map;
    });
    if (!known) adapters.push_back(std::move(adapter));
  }
  return adapters;
}

}  // namespace penstock
