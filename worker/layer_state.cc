#include "worker/layer_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr absl::string_view kTiedWeight = "wte.weight";

bool IsTiedHead(const Chain& chain, int layer) { return chain.tied() && layer == chain.size() - 1; }

// Keeps the tied weight (and its optimizer state "wte.weight.<slot>").
void KeepTiedWeight(std::vector<NamedArray>& arrays) {
  arrays.erase(std::remove_if(arrays.begin(), arrays.end(),
                              [](const NamedArray& array) {
                                return !absl::StartsWith(array.name, kTiedWeight);
                              }),
               arrays.end());
}

}  // namespace

std::vector<LayerState> CopyLayers(Stage& stage, const Chain& chain, LayerRange layers) {
  std::vector<LayerState> states;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    LayerState state = {.layer = layer, .name = chain.layers[layer].name};
    if (!IsTiedHead(chain, layer)) {
      state.weights = stage.LayerWeights(layer - layers.first);
      state.optimizer_state = stage.LayerOptimizerState(layer - layers.first);
    }
    states.push_back(std::move(state));
  }
  return states;
}

absl::Status LoadLayers(Files& files, const std::string& directory, const Manifest& manifest,
                        const Chain& chain, LayerRange layers, Stage& stage) {
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    const bool tied_head = IsTiedHead(chain, layer);
    PENSTOCK_ASSIGN_OR_RETURN(LayerState state,
                              LoadLayer(files, directory, manifest, tied_head ? 0 : layer));
    if (tied_head) {
      KeepTiedWeight(state.weights);
      KeepTiedWeight(state.optimizer_state);
    }
    const int local = layer - layers.first;
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(stage.LoadLayerWeights(local, state.weights), absl::string_view(directory)));
    PENSTOCK_RETURN_IF_ERROR(Annotate(stage.LoadLayerOptimizerState(local, state.optimizer_state),
                                      absl::string_view(directory)));
  }
  stage.SetVersion(manifest.updates);
  return absl::OkStatus();
}

}  // namespace penstock
