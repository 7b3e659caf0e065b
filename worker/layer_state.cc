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

std::vector<LayerSnapshot> CopyLayers(Stage& stage, const Chain& chain, LayerRange layers) {
  std::vector<LayerSnapshot> snapshots;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    LayerSnapshot& snapshot = snapshots.emplace_back();
    snapshot.state.layer = layer;
    snapshot.state.name = chain.layers[layer].name;
    std::vector<NamedArray> weights = stage.LayerWeights(layer - layers.first);
    if (IsTiedHead(chain, layer)) {
      snapshot.tied_weight = std::move(weights);
    } else {
      snapshot.state.weights = std::move(weights);
      snapshot.state.optimizer_state = stage.LayerOptimizerState(layer - layers.first);
    }
  }
  return snapshots;
}

absl::Status LoadLayers(Files& files, const std::string& directory, const Manifest& manifest,
                        const Chain& chain, LayerRange layers,
                        absl::FunctionRef<absl::Status()> may_go_on, Stage& stage) {
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
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
    if (!stage.updates()) continue;
    PENSTOCK_RETURN_IF_ERROR(Annotate(stage.LoadLayerOptimizerState(local, state.optimizer_state),
                                      absl::string_view(directory)));
  }
  stage.SetVersion(manifest.UpdatesOf(layers.first));
  return absl::OkStatus();
}

}  // namespace penstock
