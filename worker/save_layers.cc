#include "worker/save_layers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_points.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::Status CheckFinite(const std::string& layer, absl::Span<const NamedArray> arrays) {
  for (const NamedArray& array : arrays) {
    const auto bad = std::find_if(array.values.begin(), array.values.end(),
                                  [](float value) { return !std::isfinite(value); });
    if (bad == array.values.end()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("layer ", layer, ": ", array.name, " has the value ", *bad, " at ",
                     bad - array.values.begin(),
                     "; lower the learning rate, lengthen the warm-up or clip gradients"));
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const LayerState& state) {
  PENSTOCK_RETURN_IF_ERROR(CheckFinite(state.name, state.weights));
  return CheckFinite(state.name, state.optimizer_state);
}

}  // namespace

v1::LayersSaved SavedMessage(int64_t step, const std::vector<SavedLayer>& layers) {
  v1::LayersSaved saved;
  saved.set_step(step);
  for (const SavedLayer& layer : layers) {
    v1::LayerDigest& digest = *saved.add_layers();
    digest.set_layer(layer.layer);
    digest.set_name(layer.name);
    digest.set_sha256(layer.sha256);
    for (const CheckpointFile& file : layer.files) {
      v1::SavedFile& entry = *saved.add_files();
      entry.set_name(file.name);
      entry.set_size_bytes(file.size_bytes);
      entry.set_sha256(file.sha256);
      entry.set_layer(file.layer);
    }
  }
  return saved;
}

absl::StatusOr<std::vector<SavedLayer>> SaveLayers(FileWriter& files, const std::string& staging,
                                                   const std::vector<LayerSnapshot>& layers,
                                                   absl::FunctionRef<absl::Status()> may_go_on) {
  for (const LayerSnapshot& layer : layers) PENSTOCK_RETURN_IF_ERROR(CheckFinite(layer.state));
  std::vector<SavedLayer> saved;
  for (const LayerSnapshot& layer : layers) {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    PENSTOCK_FAULT_POINT_STATUS(kSaveBeforeLayer);
    SavedLayer& entry = saved.emplace_back();
    entry.layer = layer.state.layer;
    entry.name = layer.state.name;
    entry.sha256 = ParametersDigest(layer.parameters());
    PENSTOCK_ASSIGN_OR_RETURN(entry.files, WriteLayer(files, staging, layer.state));
    PENSTOCK_FAULT_POINT(kSaveAfterLayer);
  }
  return saved;
}

}  // namespace penstock
