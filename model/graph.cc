#include "model/graph.h"

#include <algorithm>
#include <set>
#include <utility>

namespace penstock {

bool Node::trains() const {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const ParameterSpec& parameter) { return !parameter.frozen; });
}

int64_t LayerSpec::parameter_count() const {
  int64_t count = 0;
  for (const ParameterSpec& parameter : parameters) count += parameter.size();
  return count;
}

std::vector<ValueType> ModelGraph::InputTypes(const Node& node) const {
  std::vector<ValueType> types;
  types.reserve(node.inputs.size());
  for (const int input : node.inputs) types.push_back(TypeOf(input));
  return types;
}

int ModelGraph::LayerOfNode(int node) const {
  const auto after =
      std::upper_bound(layers.begin(), layers.end(), node,
                       [](int n, const LayerSpec& layer) { return n < layer.first_node; });
  return static_cast<int>(after - layers.begin()) - 1;
}

int ModelGraph::first_stage_layers_min() const {
  const auto first = std::find_if(layers.begin(), layers.end() - 1,
                                  [](const LayerSpec& layer) { return !layer.parameters.empty(); });
  return static_cast<int>(first - layers.begin()) + 1;
}

int64_t ModelGraph::parameter_count() const {
  std::map<std::string, int64_t> sizes;
  for (const LayerSpec& layer : layers) {
    for (const ParameterSpec& parameter : layer.parameters)
      sizes[parameter.name] = parameter.size();
  }
  int64_t count = 0;
  for (const auto& [name, size] : sizes) count += size;
  return count;
}

std::map<std::string, int> ModelGraph::OwnersElsewhere(int layer) const {
  std::map<std::string, int> owners;
  for (const Tie& tie : ties) {
    if (tie.owner() == layer || !std::binary_search(tie.uses.begin(), tie.uses.end(), layer)) {
      continue;
    }
    for (const ParameterSpec& parameter : tie.parameters) owners[parameter.name] = tie.owner();
  }
  return owners;
}

LossTraits ModelGraph::loss() const {
  const std::vector<ValueType> inputs = InputTypes(nodes.back());
  return nodes.back().op->loss({nodes.back().attributes, inputs});
}

int64_t ModelGraph::targets_per_sample() const {
  return nodes.empty() ? 0 : TypeOf(targets()).elements();
}

bool ModelGraph::has_tokens() const {
  return loss().classes > 0 && TypeOf(targets()).dims.size() == 1;
}

std::optional<int32_t> ModelGraph::IgnoredIn(int port) const {
  if (targets() != port) return std::nullopt;
  const bool others_read = std::any_of(nodes.begin(), nodes.end() - 1, [port](const Node& node) {
    return std::count(node.inputs.begin(), node.inputs.end(), port) > 0;
  });
  return others_read ? std::nullopt : loss().ignored;
}

const Node* ModelGraph::FindCarrying(LayerRange range) const {
  for (int n = layers[range.first].first_node; n < layers[range.end() - 1].end_node(); ++n) {
    for (const BufferSpec& buffer : nodes[n].buffers) {
      if (buffer.kind == BufferSpec::Kind::kCarried) return &nodes[n];
    }
  }
  return nullptr;
}

std::vector<Tie> FindTies(absl::Span<const LayerSpec> layers) {
  std::map<std::string, std::vector<int>> uses;
  std::vector<const ParameterSpec*> firsts;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const ParameterSpec& parameter : layers[layer].parameters) {
      std::vector<int>& of_parameter = uses[parameter.name];
      if (of_parameter.empty()) firsts.push_back(&parameter);
      of_parameter.push_back(static_cast<int>(layer));
    }
  }
  std::vector<Tie> ties;
  for (const ParameterSpec* first : firsts) {
    std::vector<int>& of_parameter = uses[first->name];
    if (of_parameter.front() == of_parameter.back()) continue;
    auto tie = std::find_if(ties.begin(), ties.end(), [&](const Tie& known) {
      return known.uses == of_parameter && known.frozen() == first->frozen;
    });
    if (tie == ties.end()) tie = ties.insert(tie, {.uses = of_parameter});
    tie->parameters.push_back(*first);
  }
  return ties;
}

void Untie(ModelGraph& model) {
  std::set<std::string> taken;
  model.untied = false;
  for (LayerSpec& layer : model.layers) {
    layer.parameters.clear();
    for (int n = layer.first_node; n < layer.end_node(); ++n) {
      Node& node = model.nodes[n];
      const std::vector<ValueType> inputs = model.InputTypes(node);
      // The node was checked when it was added.
      const OpResult own = *node.op->infer({node.attributes, inputs});
      for (size_t i = 0; i < node.parameters.size(); ++i) {
        ParameterSpec& parameter = node.parameters[i];
        if (!taken.insert(parameter.name).second) {
          parameter.initial_as =
              std::exchange(parameter.name, node.parameter_prefix + own.parameters[i].name);
          if (!taken.insert(parameter.name).second) {
            parameter.name = node.name + "." + own.parameters[i].name;
            taken.insert(parameter.name);
          }
          model.untied = true;
        }
        layer.parameters.push_back(parameter);
      }
    }
  }
  model.ties.clear();
}

LayerCost EstimateCost(const ModelGraph& model, const LayerSpec& layer) {
  LayerCost sum;
  for (int n = layer.first_node; n < layer.end_node(); ++n) {
    const Node& node = model.nodes[n];
    const std::vector<ValueType> inputs = model.InputTypes(node);
    const OpCost cost = node.op->cost({node.attributes, inputs});
    sum.forward_flops += cost.forward_flops;
    if (node.needs_gradient) {
      sum.backward_input_flops += cost.backward_input_flops;
      sum.repeated_flops += cost.repeated_flops;
    }
    if (node.trains()) sum.backward_weight_flops += cost.backward_weight_flops;
  }
  return sum;
}

LayerCost EstimateCost(const ModelGraph& model) {
  LayerCost sum;
  for (const LayerSpec& layer : model.layers) {
    const LayerCost cost = EstimateCost(model, layer);
    sum.forward_flops += cost.forward_flops;
    sum.backward_input_flops += cost.backward_input_flops;
    sum.backward_weight_flops += cost.backward_weight_flops;
    sum.repeated_flops += cost.repeated_flops;
  }
  return sum;
}

}  // namespace penstock
