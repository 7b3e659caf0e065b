#include "inference/hugging_face_weights.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_choice.h"
#include "checkpoint/weight_files.h"
#include "inference/merge_lora.h"
#include "model/lora.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

constexpr char kDtype[] = "F32";

struct OwnParameter {
  int layer = 0;
  std::string name;
};

// All parameters but those of adapters, with the layers that have them in the checkpoint, which is the first one that uses
// them.
std::vector<OwnParameter> ParametersOf(const ModelGraph& model, std::vector<TensorType>& types) {
  std::vector<OwnParameter> parameters;
  std::set<std::string> known;
  for (int layer = 0; layer < model.size(); ++layer) {
    for (const ParameterSpec& parameter : model.layers[layer].parameters) {
      const bool is_of_adapter =
          absl::EndsWith(parameter.name, kLoraA) || absl::EndsWith(parameter.name, kLoraB);
      if (is_of_adapter || !known.insert(parameter.name).second) continue;
      parameters.push_back({layer, parameter.name});
      types.push_back({.dtype = kDtype, .shape = parameter.shape});
    }
  }
  return parameters;
}

int64_t BytesOf(const TensorType& tensor) {
  int64_t bytes = SafetensorsElementBytes(tensor.dtype);
  for (const int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

// Reads one parameter after the other, with its adapter in it if it has one, and holds the layer of the last one.
class ParameterReader {
 public:
  ParameterReader(Files& files, const CheckpointModel& model)
      : files_(files), model_(model), adapters_(FindAdapters(model.graph)) {}

  absl::StatusOr<absl::string_view> Read(const OwnParameter& parameter) {
    if (!state_.has_value() || state_->layer != parameter.layer) {
      state_.reset();
      PENSTOCK_ASSIGN_OR_RETURN(
          state_, LoadLayer(files_, model_.directory, model_.manifest, parameter.layer));
      PENSTOCK_RETURN_IF_ERROR(ChooseWeights(model_.weights, model_.directory, model_.manifest,
                                             model_.graph.layers[parameter.layer], *state_));
      PENSTOCK_RETURN_IF_ERROR(Merge(state_->weights));
    }
    const auto array =
        std::find_if(state_->weights.begin(), state_->weights.end(),
                     [&](const NamedArray& each) { return each.name == parameter.name; });
    if (array == state_->weights.end()) {
      return absl::DataLossError(
          absl::StrCat(model_.directory, ": layer ", parameter.layer, " has no ", parameter.name));
    }
    return absl::string_view(reinterpret_cast<const char*>(array->values.data()),
                             array->values.size() * sizeof(float));
  }

 private:
  absl::Status Merge(std::vector<NamedArray>& weights) const {
    std::vector<LoraAdapter> here;
    for (const LoraAdapter& adapter : adapters_) {
      const std::string name = absl::StrCat(adapter.map, ".", kLoraA);
      const bool is_here = std::any_of(weights.begin(), weights.end(),
                                       [&](const NamedArray& each) { return each.name == name; });
      if (is_here) here.push_back(adapter);
    }
    if (here.empty()) return absl::OkStatus();
    PENSTOCK_ASSIGN_OR_RETURN(weights, MergeLora(here, std::move(weights)));
    return absl::OkStatus();
  }

  Files& files_;
  const CheckpointModel& model_;
  const std::vector<LoraAdapter> adapters_;
  std::optional<LayerState> state_;
};

std::string ShardName(size_t shard, size_t shards) {
  return absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, shards);
}

// The content of the index.
std::string IndexText(const std::vector<std::vector<TensorType>>& shards) {
  nlohmann::ordered_json index;
  int64_t bytes = 0;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    for (const TensorType& tensor : shards[shard]) {
      index["weight_map"][tensor.name] = ShardName(shard, shards.size());
      bytes += BytesOf(tensor);
    }
  }
  index["metadata"]["total_size"] = bytes;
  return index.dump(2) + "\n";
}

}  // namespace

absl::Status CheckAbsent(Files& files, const std::string& path) {
  if (!files.Exists(path)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(path, " exists; name another place with -o, or remove it first"));
}

std::vector<std::vector<TensorType>> SplitIntoShards(absl::Span<const TensorType> tensors,
                                                     int64_t bytes_max) {
  std::vector<std::vector<TensorType>> shards;
  int64_t bytes = 0;
  for (const TensorType& tensor : tensors) {
    if (shards.empty() || bytes + BytesOf(tensor) > bytes_max) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += BytesOf(tensor);
    shards.back().push_back(tensor);
  }
  return shards;
}

absl::StatusOr<std::vector<std::string>> WriteWeights(Files& files, const CheckpointModel& model,
                                                      const WeightsOutput& output) {
  std::vector<TensorType> types;
  const std::vector<OwnParameter> parameters = ParametersOf(model.graph, types);
  for (size_t i = 0; i < types.size(); ++i) types[i].name = output.name(parameters[i].name);
  const std::vector<std::vector<TensorType>> shards =
      SplitIntoShards(types, output.shard_bytes_max);
  const bool is_one = shards.size() == 1;
  std::vector<std::string> paths;
  if (!is_one) paths.push_back(JoinPath(output.directory, kWeightsIndexName));
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    paths.push_back(
        JoinPath(output.directory, is_one ? output.file : ShardName(shard, shards.size())));
  }
  for (const std::string& path : paths) PENSTOCK_RETURN_IF_ERROR(CheckAbsent(files, path));
  ParameterReader reader(files, model);
  auto parameter = parameters.begin();
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    // Hugging Face refuses files that do not say which framework their layouts are from.
    const std::string header = SafetensorsHeaderFor(shards[shard], {{"format", "pt"}});
    const auto end = parameter + static_cast<int64_t>(shards[shard].size());
    bool at_header = true;
    PENSTOCK_RETURN_IF_ERROR(files.WriteInParts(paths[is_one ? shard : shard + 1],
                                                [&]() -> absl::StatusOr<absl::string_view> {
                                                  if (std::exchange(at_header, false))
                                                    return absl::string_view(header);
                                                  if (parameter == end) return absl::string_view();
                                                  return reader.Read(*parameter++);
                                                }));
  }
  if (!is_one) PENSTOCK_RETURN_IF_ERROR(files.WriteDurably(paths.front(), {IndexText(shards)}));
  return paths;
}

}  // namespace penstock
