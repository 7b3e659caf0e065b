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

// In a checkpoint's file of the optimizer's state.
constexpr char kActivationsLeftOut[] = "messages.activations_left_out";
constexpr char kGradientsLeftOut[] = "messages.gradients_left_out";

void CopyLeftOutOf(const MessageCoder* coder, const char* name, LayerSnapshot& layer) {
  if (coder == nullptr) return;
  const absl::Span<const float> left_out = coder->left_out();
  layer.state.optimizer_state.push_back(
      {name, {static_cast<int64_t>(left_out.size())}, {left_out.begin(), left_out.end()}});
}

// Takes the array of this name out of `arrays`, if it is there, and gives it to `coder`, which may be null. Returns whether that
// had no place for it.
bool DropsLeftOut(const char* name, const MessageCoder* coder, std::vector<NamedArray>& arrays) {
  const auto kept = std::find_if(arrays.begin(), arrays.end(),
                                 [&](const NamedArray& array) { return array.name == name; });
  if (kept == arrays.end()) return false;
  const bool fits = coder != nullptr && coder->left_out().size() == kept->values.size();
  if (fits) std::copy(kept->values.begin(), kept->values.end(), coder->left_out().begin());
  arrays.erase(kept);
  return !fits;
}

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

void CopyLeftOut(const StageCoders& coders, std::vector<LayerSnapshot>& layers) {
  CopyLeftOutOf(coders.activations.get(), kActivationsLeftOut, layers.back());
  CopyLeftOutOf(coders.gradients.get(), kGradientsLeftOut, layers.front());
}

absl::Status LoadLayers(FileReader& files, const std::string& directory, const Manifest& manifest,
                        const ModelGraph& model, LayerRange layers,
                        absl::FunctionRef<absl::Status()> may_go_on, const StageCoders& coders,
                        absl::FunctionRef<void(int layer)> dropped, Stage& stage,
                        LayerFiles wanted) {
  if (wanted == LayerFiles::kBoth && !stage.updates()) wanted = LayerFiles::kWeights;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    PENSTOCK_ASSIGN_OR_RETURN(LayerState state,
                              LoadWholeLayer(files, directory, manifest, model, layer, wanted));
    const int local = layer - layers.first;
    if (wanted != LayerFiles::kOptimizerState) {
      PENSTOCK_RETURN_IF_ERROR(
          Annotate(stage.LoadLayerWeights(local, state.weights), absl::string_view(directory)));
    }
    if (wanted == LayerFiles::kWeights) continue;
    std::vector<NamedArray>& arrays = state.optimizer_state;
    const bool is_last = layer + 1 == layers.end();
    const bool drops_activations =
        DropsLeftOut(kActivationsLeftOut, is_last ? coders.activations.get() : nullptr, arrays);
    const bool drops_gradients =
        DropsLeftOut(kGradientsLeftOut, local == 0 ? coders.gradients.get() : nullptr, arrays);
    if (drops_activations || drops_gradients) dropped(layer);
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(stage.LoadLayerOptimizerState(local, arrays), absl::string_view(directory)));
  }
  stage.SetVersion(manifest.UpdatesOf(model.layers[layers.first].number));
  return absl::OkStatus();
}

}  // namespace penstock
