#include "worker/layer_state.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace penstock {
namespace {

using Owners = std::map<std::string, int>;  // of parameters that are kept elsewhere

bool HasOwn(const LayerSpec& layer, const Owners& elsewhere) {
  return std::any_of(
      layer.parameters.begin(), layer.parameters.end(),
      [&](const ParameterSpec& parameter) { return elsewhere.count(parameter.name) == 0; });
}

}  // namespace

std::vector<LayerSnapshot> CopyLayers(Stage& stage, const ModelGraph& model, LayerRange layers) {
  std::vector<LayerSnapshot> snapshots;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    LayerSnapshot& snapshot = snapshots.emplace_back();
    snapshot.state.layer = model.layers[layer].number;
    snapshot.state.name = model.layers[layer].name;
    snapshot.state.weights = stage.LayerWeights(layer - layers.first);
    const Owners elsewhere = model.OwnersElsewhere(layer);
    const auto is_elsewhere = [&](const NamedArray& array) {
      return OwnerOf(array.name, elsewhere) != nullptr;
    };
    if (!elsewhere.empty()) {
      snapshot.all_weights = snapshot.state.weights;
      std::erase_if(snapshot.state.weights, is_elsewhere);
    }
    if (!HasOwn(model.layers[layer], elsewhere)) continue;
    snapshot.state.optimizer_state = stage.LayerOptimizerState(layer - layers.first);
    std::erase_if(snapshot.state.optimizer_state, is_elsewhere);
  }
  return snapshots;
}

absl::Status LoadLayers(FileReader& files, const std::string& directory, const Manifest& manifest,
                        const ModelGraph& model, LayerRange layers,
                        absl::FunctionRef<absl::Status()> may_go_on, Stage& stage) {
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    PENSTOCK_ASSIGN_OR_RETURN(const LayerState state,
                              LoadWholeLayer(files, directory, manifest, model, layer));
    const int local = layer - layers.first;
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(stage.LoadLayerWeights(local, state.weights), absl::string_view(directory)));
    if (!stage.updates()) continue;
    PENSTOCK_RETURN_IF_ERROR(Annotate(stage.LoadLayerOptimizerState(local, state.optimizer_state),
                                      absl::string_view(directory)));
  }
  stage.SetVersion(manifest.UpdatesOf(model.layers[layers.first].number));
  return absl::OkStatus();
}

}  // namespace penstock
