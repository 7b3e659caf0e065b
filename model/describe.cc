#include "model/describe.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock {
namespace {

// "conv2d(channels 64, kernel [3, 3])". A word says itself.
std::string Settings(const Node& node) {
  std::vector<std::string> settings;
  for (const AttributeSpec& spec : node.op->attributes) {
    const AttributeValue* value = node.attributes.Find(spec.name);
    if (value == nullptr || spec.use == AttributeUse::kInitialWeights) continue;
    if (spec.use == AttributeUse::kKernelsAddedLater && IsDefault(spec, *value)) continue;
    const std::string text = ToString(*value);
    settings.push_back(spec.kind == AttributeKind::kWord ? text
                                                         : absl::StrCat(spec.name, " ", text));
  }
  return absl::StrCat(node.op->described_as, "(", absl::StrJoin(settings, ", "), ")");
}

enum class Gradients : bool { kUnsaid, kSaid };

// What a node reads, from inside the layer by its place there, and from outside by its type.
std::string Inputs(const ModelGraph& model, const LayerSpec& layer, const Node& node,
                   Gradients gradients) {
  std::vector<std::string> inputs;
  for (const int value : node.inputs) {
    const int place = model.is_port(value) ? -1 : model.NodeOf(value) - layer.first_node;
    const ValueType& type = model.TypeOf(value);
    inputs.push_back(place < 0 ? type.ToString() : absl::StrCat("#", place));
    // Whole numbers never have one.
    const bool lacks = type.dtype == DType::kF32 && !model.NeedsGradient(value);
    if (gradients == Gradients::kSaid && place < 0 && lacks) inputs.back() += " without gradient";
  }
  return absl::StrJoin(inputs, " and ");
}

// " with frozen parameters 0, 1", by place in the node: names differ from layer to layer.
std::string Frozen(const Node& node) {
  std::string frozen;
  for (size_t p = 0; p < node.parameters.size(); ++p) {
    if (node.parameters[p].frozen) absl::StrAppend(&frozen, frozen.empty() ? "" : ", ", p);
  }
  if (frozen.empty()) return "";
  return absl::StrCat(" with frozen parameters ", frozen,
                      node.needs_gradient ? "" : " and no gradient");
}

std::string DescribeNodes(const ModelGraph& model, const LayerSpec& layer, Gradients gradients) {
  // The ops of GPT-2 name all sizes, and older checkpoints and profiles have them without their inputs.
  if (model.architecture == "gpt") {
    const Node& node = model.nodes[layer.first_node];
    std::string text = Settings(node);
    if (gradients == Gradients::kSaid) absl::StrAppend(&text, Frozen(node));
    return text;
  }
  std::vector<std::string> nodes;
  for (int n = layer.first_node; n < layer.end_node(); ++n) {
    const Node& node = model.nodes[n];
    nodes.push_back(absl::StrCat(Settings(node), " of ", Inputs(model, layer, node, gradients)));
    if (gradients == Gradients::kSaid) absl::StrAppend(&nodes.back(), Frozen(node));
  }
  return absl::StrJoin(nodes, "; ");
}

}  // namespace

std::string Describe(const ModelGraph& model, const LayerSpec& layer) {
  return DescribeNodes(model, layer, Gradients::kUnsaid);
}

std::string DescribeWork(const ModelGraph& model, const LayerSpec& layer) {
  return DescribeNodes(model, layer, Gradients::kSaid);
}

std::vector<int> FirstLayersOfShapes(const ModelGraph& model) {
  std::vector<int> firsts;
  std::vector<std::string> known;
  for (int i = 0; i < model.size(); ++i) {
    std::string text = DescribeWork(model, model.layers[i]);
    if (std::find(known.begin(), known.end(), text) != known.end()) continue;
    firsts.push_back(i);
    known.push_back(std::move(text));
  }
  return firsts;
}

}  // namespace penstock
