#include "worker/layer_state.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace penstock {
namespace {

// Parameters whose values are kept with the first layer.
std::set<std::string> KeptElsewhere(const ModelGraph& model, int layer) {
  return layer == model.size() - 1 ? model.tied_names() : std::set<std::string>();
}

// Whether an array is one of the parameters, or of the optimizer's state for one: "wte.weight.<slot>".
bool IsOf(const NamedArray& array, const std::set<std::string>& names) {
  return names.count(array.name) > 0 ||
         names.count(array.name.substr(0, array.name.rfind('.'))) > 0;
}

// Adds to `own` what `first`, the same part of the first layer's state, has of tied parameters.
void AddTied(const std::vector<NamedArray>& first, const std::set<std::string>& names,
             std::vector<NamedArray>& own) {
  std::copy_if(first.begin(), first.end(), std::back_inserter(own),
               [&](const NamedArray& array) { return IsOf(array, names); });
}

}  // namespace

std::vector<LayerSnapshot> CopyLayers(Stage& stage, const ModelGraph& model, LayerRange layers) {
  std::vector<LayerSnapshot> snapshots;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    LayerSnapshot& snapshot = snapshots.emplace_back();
    snapshot.state.layer = model.layers[layer].number;
    snapshot.state.name = model.layers[layer].name;
    snapshot.state.weights = stage.LayerWeights(layer - layers.first);
    const std::set<std::string> elsewhere = KeptElsewhere(model, layer);
    const auto is_elsewhere = [&](const NamedArray& array) { return IsOf(array, elsewhere); };
    if (!elsewhere.empty()) {
      snapshot.all_weights = snapshot.state.weights;
      std::erase_if(snapshot.state.weights, is_elsewhere);
    }
    if (model.layers[layer].parameters.size() == elsewhere.size()) continue;  // nothing of its own
    snapshot.state.optimizer_state = stage.LayerOptimizerState(layer - layers.first);
    std::erase_if(snapshot.state.optimizer_state, is_elsewhere);
  }
  return snapshots;
}

absl::Status LoadLayers(Files& files, const std::string& directory, const Manifest& manifest,
                        const ModelGraph& model, LayerRange layers,
                        absl::FunctionRef<absl::Status()> may_go_on, Stage& stage) {
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    PENSTOCK_ASSIGN_OR_RETURN(LayerState state,
                              LoadLayer(files, directory, manifest, model.layers[layer].number));
    if (const std::set<std::string> tied = KeptElsewhere(model, layer); !tied.empty()) {
      PENSTOCK_ASSIGN_OR_RETURN(const LayerState first, LoadLayer(files, directory, manifest, 0));
      AddTied(first.weights, tied, state.weights);
      AddTied(first.optimizer_state, tied, state.optimizer_state);
    }
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
