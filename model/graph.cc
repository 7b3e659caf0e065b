#include "model/graph.h"

#include <algorithm>
#include <map>

namespace penstock {

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

std::set<std::string> ModelGraph::tied_names() const {
  std::set<std::string> first, tied;
  if (layers.size() < 2) return tied;
  for (const ParameterSpec& parameter : layers.front().parameters) first.insert(parameter.name);
  for (const ParameterSpec& parameter : layers.back().parameters) {
    if (first.count(parameter.name) > 0) tied.insert(parameter.name);
  }
  return tied;
}

int64_t ModelGraph::targets_per_sample() const {
  return nodes.empty() ? 0 : TypeOf(nodes.back().inputs.back()).elements();
}

const Node* ModelGraph::FindCarrying(LayerRange range) const {
  for (int n = layers[range.first].first_node; n < layers[range.end() - 1].end_node(); ++n) {
    for (const BufferSpec& buffer : nodes[n].buffers) {
      if (buffer.kind == BufferSpec::Kind::kCarried) return &nodes[n];
    }
  }
  return nullptr;
}

LayerCost EstimateCost(const ModelGraph& model, const LayerSpec& layer) {
  LayerCost sum;
  for (int n = layer.first_node; n < layer.end_node(); ++n) {
    const Node& node = model.nodes[n];
    const std::vector<ValueType> inputs = model.InputTypes(node);
    const OpCost cost = node.op->cost({node.attributes, inputs});
    sum.forward_flops += cost.forward_flops;
    sum.backward_input_flops += cost.backward_input_flops;
    sum.backward_weight_flops += cost.backward_weight_flops;
  }
  return sum;
}

}  // namespace penstock
