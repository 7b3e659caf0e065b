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

void EraseKeptElsewhere(const Owners& elsewhere, std::vector<NamedArray>& arrays) {
  std::erase_if(arrays,
                [&](const NamedArray& array) { return OwnerOf(array.name, elsewhere) != nullptr; });
}

}  // namespace

void CopyWeights(Stage& stage, const ModelGraph& model, LayerRange layers, int layer,
                 LayerSnapshot& snapshot) {
  snapshot.state.layer = model.layers[layer].number;
  snapshot.state.name = model.layers[layer].name;
  snapshot.state.weights = stage.LayerWeights(layer - layers.first);
  const Owners elsewhere = model.OwnersElsewhere(layer);
  if (elsewhere.empty()) return;
  snapshot.all_weights = snapshot.state.weights;
  EraseKeptElsewhere(elsewhere, snapshot.state.weights);
}

void CopyOptimizerState(Stage& stage, const ModelGraph& model, LayerRange layers, int layer,
                        LayerSnapshot& snapshot) {
  const Owners elsewhere = model.OwnersElsewhere(layer);
  if (!HasOwn(model.layers[layer], elsewhere)) return;
  snapshot.state.optimizer_state = stage.LayerOptimizerState(layer - layers.first);
  EraseKeptElsewhere(elsewhere, snapshot.state.optimizer_state);
}

std::vector<LayerSnapshot> CopyLayers(Stage& stage, const ModelGraph& model, LayerRange layers) {
  std::vector<LayerSnapshot> snapshots;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    LayerSnapshot& snapshot = snapshots.emplace_back();
    CopyWeights(stage, model, layers, layer, snapshot);
    CopyOptimizerState(stage, model, layers, layer, snapshot);
  }
  return snapshots;
}

absl::Status LoadLayers(FileReader& files, const std::string& directory, const Manifest& manifest,
                        const ModelGraph& model, LayerRange layers,
                        absl::FunctionRef<absl::Status()> may_go_on, Stage& stage,
                        LayerFiles wanted) {
  if (wanted == LayerFiles::kBoth && !stage.updates()) wanted = LayerFiles::kWeights;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    PENSTOCK_ASSIGN_OR_RETURN(const LayerState state,
                              LoadWholeLayer(files, directory, manifest, model, layer, wanted));
    const int local = layer - layers.first;
    if (wanted != LayerFiles::kOptimizerState) {
      PENSTOCK_RETURN_IF_ERROR(
          Annotate(stage.LoadLayerWeights(local, state.weights), absl::string_view(directory)));
    }
    if (wanted == LayerFiles::kWeights) continue;
    PENSTOCK_RETURN_IF_ERROR(Annotate(stage.LoadLayerOptimizerState(local, state.optimizer_state),
                                      absl::string_view(directory)));
  }
  stage.SetVersion(manifest.UpdatesOf(model.layers[layers.first].number));
  return absl::OkStatus();
}

}  // namespace penstock
