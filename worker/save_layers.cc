#include "worker/save_layers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_points.h"
#include "base/status.h"

namespace penstock {
namespace {

// Numbers that are not finite have all bits of their exponent set. A loop without branches, which the compiler makes fast: it sees
// each value of each snapshot.
bool AllFinite(absl::Span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000;
  bool all = true;
  for (const float value : values) all &= (std::bit_cast<uint32_t>(value) & kExponent) != kExponent;
  return all;
}

absl::Status CheckFinite(const std::string& layer, absl::Span<const NamedArray> arrays) {
  for (const NamedArray& array : arrays) {
    if (AllFinite(array.values)) continue;
    const auto bad = std::find_if(array.values.begin(), array.values.end(),
                                  [](float value) { return !std::isfinite(value); });
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

v1::SavedFile MessageOf(const CheckpointFile& file) {
  v1::SavedFile message;
  message.set_name(file.name);
  message.set_size_bytes(file.size_bytes);
  message.set_sha256(file.sha256);
  message.set_layer(file.layer);
  return message;
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
    for (const CheckpointFile& file : layer.files) *saved.add_files() = MessageOf(file);
    for (const CheckpointFile& file : layer.attached) *saved.add_attached() = MessageOf(file);
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
    for (const AttachedFile& attached : layer.attached) {
      PENSTOCK_ASSIGN_OR_RETURN(entry.attached.emplace_back(),
                                WriteAttached(files, staging, attached));
    }
    PENSTOCK_FAULT_POINT(kSaveAfterLayer);
  }
  return saved;
}

}  // namespace penstock
