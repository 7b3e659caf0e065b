#include "inference/checkpoint_model.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "job/model_graph.h"
#include "model/families/bert.h"
#include "model/families/llama.h"
#include "model/fuse_branches.h"

namespace penstock {
namespace {

using Fields = std::map<std::string, std::string>;

// Returns the fields that are about the model; the rest is about training.
Fields ModelFields(const Fingerprint& fingerprint) {
  Fields fields;
  for (const auto& [field, value] : fingerprint) {
    if (absl::StartsWith(field, "model")) fields[field] = value;
  }
  return fields;
}

int64_t IntegerOrZero(const Fields& fields, const std::string& name) {
  const auto it = fields.find(name);
  int32_t value = 0;  // larger ones are no sizes of a model
  return it != fields.end() && absl::SimpleAtoi(it->second, &value) ? value : 0;
}

// Manifests of the version before have no model. It is read from the texts of their fingerprint.
absl::StatusOr<GptConfig> ConfigByFingerprint(const Fingerprint& fingerprint) {
  const Fields fields = ModelFields(fingerprint);
  GptConfig config;
  config.vocabulary = IntegerOrZero(fields, "model.vocabulary");
  config.context = IntegerOrZero(fields, "model.context");
  config.width = IntegerOrZero(fields, "model.width");
  config.layers = (IntegerOrZero(fields, "model layers") - 3) / 2;
  const auto attention = fields.find("model layer h.0.attention");
  if (attention != fields.end()) {
    long long heads = 0;
    (void)std::sscanf(attention->second.c_str(), "attention(width %*d, heads %lld, dropout %lf)",
                      &heads, &config.dropout);
    config.heads = heads;
  }
  const auto head = fields.find("model layer head");
  config.tied_head = head == fields.end() || !absl::StrContains(head->second, "untied");
  // Nothing was misread if this configuration has that very fingerprint.
  const absl::StatusOr<ModelGraph> chain = BuildGpt(config);
  if (!chain.ok() ||
      ModelFields(MakeFingerprint({.model = *chain, .optimizer = AdamWConfig()})) != fields) {
    return absl::UnimplementedError(
        "the checkpoint holds a model that this version of Penstock cannot build; use the version "
        "that wrote it");
  }
  return config;
}

// What training carried to its next step, if it did, is nothing to go on from elsewhere.
void ForgetCarried(const ModelGraph& graph, int64_t samples, int layer,
                   std::vector<NamedArray>& arrays) {
  const LayerSpec& spec = graph.layers[layer];
  for (int node = spec.first_node; node < spec.end_node(); ++node) {
    for (const BufferSpec& buffer : graph.nodes[node].buffers) {
      if (buffer.kind != BufferSpec::Kind::kCarried || buffer.in_place) continue;
      arrays.erase(
          std::remove_if(arrays.begin(), arrays.end(),
                         [&](const NamedArray& array) { return array.name == buffer.name; }),
          arrays.end());
      std::vector<int64_t> shape = buffer.shape;
      shape.insert(shape.begin(), samples);
      arrays.push_back({buffer.name, std::move(shape),
                        std::vector<float>(static_cast<size_t>(samples * buffer.size()), 0.0f)});
    }
  }
}

}  // namespace

absl::StatusOr<StoredModel> ModelOf(const Manifest& manifest) {
  if (manifest.model.has_value()) return *manifest.model;
  return ConfigByFingerprint(manifest.fingerprint);
}

absl::StatusOr<CheckpointModel> OpenCheckpointModel(Files& files, const std::string& path,
                                                    WeightChoice weights) {
  CheckpointModel model = {.weights = weights};
  if (files.Exists(JoinPath(path, kManifestName))) {
    model.directory = path;
    PENSTOCK_ASSIGN_OR_RETURN(model.manifest, VerifyCheckpoint(files, path));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(FoundCheckpoint found, FindLatestCheckpoint(files, path));
    model.directory = found.directory;
    model.manifest = std::move(found.manifest);
  }
  absl::StatusOr<StoredModel> stored = ModelOf(model.manifest);
  if (!stored.ok()) return Annotate(stored.status(), model.directory);
  if (const auto* graph = std::get_if<ModelGraph>(&*stored)) {
    model.graph = FuseBranches(*graph);
    if (model.manifest.family.empty()) return model;
    const absl::StatusOr<v1::ModelSpec> family = FamilyOfText(model.manifest.family);
    if (!family.ok()) return Annotate(family.status(), model.directory);
    model.graph.architecture = family->has_gpt()    ? kGptArchitecture
                               : family->has_bert() ? kBertArchitecture
                                                    : kLlamaArchitecture;
    return model;
  }
  model.gpt = std::get<GptConfig>(*stored);
  absl::StatusOr<ModelGraph> graph = BuildGpt(*model.gpt);
  if (!graph.ok()) return Annotate(graph.status(), absl::StrCat(model.directory, ": model.gpt"));
  model.graph = *std::move(graph);
  return model;
}

absl::Status LoadWeights(Files& files, const CheckpointModel& model, LayerRange layers,
                         Stage& stage) {
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    PENSTOCK_ASSIGN_OR_RETURN(LayerState state, LoadWholeLayer(files, model.directory,
                                                               model.manifest, model.graph, layer));
    PENSTOCK_RETURN_IF_ERROR(ChooseWeights(model.weights, model.directory, model.manifest,
                                           model.graph.layers[layer], state));
    ForgetCarried(model.graph, stage.step_samples(), layer, state.weights);
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(stage.LoadLayerWeights(layer - layers.first, state.weights), model.directory));
  }
  return absl::OkStatus();
}

}  // namespace penstock
