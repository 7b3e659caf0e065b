#include "model/pytorch_init.h"

namespace penstock {
namespace {

void Initialise(std::vector<ParameterSpec>& parameters) {
  for (ParameterSpec& parameter : parameters) {
    if (!parameter.in_pytorch.has_value()) continue;
    parameter.init = parameter.in_pytorch->first;
    parameter.init_scale = parameter.in_pytorch->second;
  }
}

}  // namespace

void InitialiseAsPyTorch(ModelGraph& model) {
  for (Node& node : model.nodes) Initialise(node.parameters);
  for (LayerSpec& layer : model.layers) Initialise(layer.parameters);
  model.ties = FindTies(model.layers);
}

}  // namespace penstock
