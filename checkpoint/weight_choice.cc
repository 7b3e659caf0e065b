#include "checkpoint/weight_choice.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/fingerprint.h"
#include "compute/weight_average.h"

namespace penstock {
namespace {

NamedArray* FindArray(std::vector<NamedArray>& arrays, const std::string& name) {
  const auto found = std::find_if(arrays.begin(), arrays.end(),
                                  [&](const NamedArray& array) { return array.name == name; });
  return found == arrays.end() ? nullptr : &*found;
}

bool IsParameter(const LayerSpec& layer, const std::string& name) {
  return std::any_of(layer.parameters.begin(), layer.parameters.end(),
                     [&](const ParameterSpec& parameter) { return parameter.name == name; });
}

}  // namespace

absl::string_view Name(WeightChoice choice) {
  return choice == WeightChoice::kAverage ? "ema" : "current";
}

absl::Status ChooseWeights(WeightChoice choice, const std::string& directory,
                           const Manifest& manifest, const LayerSpec& layer, LayerState& state) {
  if (choice == WeightChoice::kCurrent) return absl::OkStatus();
  // The graph of a manifest does not always say it.
  const std::set<std::string> frozen = FrozenParameters(manifest.fingerprint);
  for (NamedArray& weight : state.weights) {
    if (!IsParameter(layer, weight.name) || frozen.count(weight.name) > 0) continue;
    NamedArray* const average =
        FindArray(state.optimizer_state, absl::StrCat(weight.name, ".", kWeightAverageState));
    if (average == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          directory, ": has no average of ", weight.name,
          ", because its job kept none; use --weights current, or train with training.ema"));
    }
    if (average->shape != weight.shape) {
      return absl::DataLossError(absl::StrCat(directory, ": ", average->name, " has shape [",
                                              absl::StrJoin(average->shape, ", "), "], expected [",
                                              absl::StrJoin(weight.shape, ", "), "]"));
    }
    weight.values = std::move(average->values);
    average->values.clear();
  }
  return absl::OkStatus();
}

}  // namespace penstock
