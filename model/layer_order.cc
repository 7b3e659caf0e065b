#include "model/layer_order.h"

#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

// `order`: layers of the model, each once.
ModelGraph Reordered(const ModelGraph& model, const std::vector<int>& order) {
  ModelGraph ordered = {.architecture = model.architecture, .ports = model.ports};
  std::vector<int> new_values(model.values());
  for (int port = 0; port < static_cast<int>(model.ports.size()); ++port) new_values[port] = port;
  for (const int from : order) {
    LayerSpec layer = model.layers[from];
    const int first_node = static_cast<int>(ordered.nodes.size());
    for (int node = layer.first_node; node < layer.end_node(); ++node) {
      ordered.nodes.push_back(model.nodes[node]);
      new_values[model.ValueOf(node)] = ordered.values() - 1;
    }
    layer.first_node = first_node;
    ordered.layers.push_back(std::move(layer));
  }
  for (Node& node : ordered.nodes) {
    for (int& input : node.inputs) input = new_values[input];
  }
  ordered.ties = FindTies(ordered.layers);
  ordered.untied = model.untied;
  return ordered;
}

absl::StatusOr<std::vector<int>> FindLayers(const ModelGraph& model,
                                            absl::Span<const std::string> names) {
  std::map<std::string, int> places;
  for (int layer = 0; layer < model.size(); ++layer) places[model.layers[layer].name] = layer;
  std::vector<int> order;
  std::vector<bool> is_there(model.size(), false);
  for (const std::string& name : names) {
    const auto found = places.find(name);
    if (found == places.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("names \"", name, "\", which is no layer of the model"));
    }
    if (is_there[found->second]) {
      return absl::InvalidArgumentError(absl::StrCat("names ", name, " twice"));
    }
    is_there[found->second] = true;
    order.push_back(found->second);
  }
  for (int layer = 0; layer < model.size(); ++layer) {
    if (is_there[layer]) continue;
    return absl::InvalidArgumentError(absl::StrCat("lacks ", model.layers[layer].name,
                                                   "; expected all ", model.size(),
                                                   " layers of the model, each once"));
  }
  return order;
}

absl::Status CheckOrder(const ModelGraph& model, const std::vector<int>& order) {
  std::vector<bool> is_done(model.size(), false);
  for (const int at : order) {
    const LayerSpec& layer = model.layers[at];
    for (int node = layer.first_node; node < layer.end_node(); ++node) {
      for (const int input : model.nodes[node].inputs) {
        if (model.is_port(input)) continue;
        const int from = model.LayerOfNode(model.NodeOf(input));
        if (from == at || is_done[from]) continue;
        return absl::InvalidArgumentError(absl::StrCat("has ", layer.name, " before ",
                                                       model.layers[from].name,
                                                       ", whose output it reads; put it behind"));
      }
    }
    is_done[at] = true;
  }
  return absl::OkStatus();
}

// A shared parameter belongs to the first layer that uses it, and must in any order, because checkpoints keep it there.
absl::Status CheckOwners(const ModelGraph& model, const std::vector<int>& order) {
  std::vector<int> places(model.size());
  for (int place = 0; place < model.size(); ++place) places[order[place]] = place;
  for (const Tie& tie : model.ties) {
    for (const int use : tie.uses) {
      if (places[use] >= places[tie.owner()]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("has ", model.layers[use].name, " before ", model.layers[tie.owner()].name,
                       ", whose ", tie.parameters.front().name, " it shares; put it behind"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelGraph> InLayerOrder(const ModelGraph& model,
                                        absl::Span<const std::string> names) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int> order, FindLayers(model, names));
  PENSTOCK_RETURN_IF_ERROR(CheckOrder(model, order));
  PENSTOCK_RETURN_IF_ERROR(CheckOwners(model, order));
  return Reordered(model, order);
}

std::vector<std::string> LayerOrderOf(const ModelGraph& model) {
  std::vector<std::string> names;
  bool is_described = true;
  for (int layer = 0; layer < model.size(); ++layer) {
    names.push_back(model.layers[layer].name);
    is_described = is_described && model.layers[layer].number == layer;
  }
  return is_described ? std::vector<std::string>() : names;
}

}  // namespace penstock
