#include "model/parameter_groups.h"

#include <algorithm>
#include <set>

#include "base/glob.h"

namespace penstock {
namespace {

void Apply(absl::Span<const ParameterGroup> groups, ParameterSpec& parameter) {
  const auto group =
      std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& candidate) {
        return MatchesGlob(candidate.pattern, parameter.name);
      });
  if (group == groups.end()) return;
  parameter.rate_scale = group->rate_scale;
  parameter.weight_decay = group->weight_decay;
  parameter.frozen = group->frozen;
}

// REQUIRES: those of all nodes before it are known.
bool NeedsGradient(const ModelGraph& model, const Node& node) {
  return node.trains() || std::any_of(node.inputs.begin(), node.inputs.end(),
                                      [&](int value) { return model.NeedsGradient(value); });
}

}  // namespace

absl::Status ApplyGroups(absl::Span<const ParameterGroup> groups, ModelGraph& model) {
  for (LayerSpec& layer : model.layers) {
    layer.parameters.clear();
    for (int n = layer.first_node; n < layer.end_node(); ++n) {
      Node& node = model.nodes[n];
      for (ParameterSpec& parameter : node.parameters) Apply(groups, parameter);
      layer.parameters.insert(layer.parameters.end(), node.parameters.begin(),
                              node.parameters.end());
      node.needs_gradient = NeedsGradient(model, node);
    }
  }
  model.ties = FindTies(model.layers);
  if (model.nodes.back().needs_gradient) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "all parameters that the loss depends on are frozen, so that nothing is left to train; "
      "freeze fewer");
}

std::vector<std::string> ParameterNames(const ModelGraph& model) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const LayerSpec& layer : model.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      if (known.insert(parameter.name).second) names.push_back(parameter.name);
    }
  }
  return names;
}

}  // namespace penstock
