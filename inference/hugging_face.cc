#include "inference/hugging_face.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

namespace penstock {
namespace {

constexpr char kWeightsName[] = "model.safetensors";
constexpr char kConfigName[] = "config.json";
constexpr char kHeadWeight[] = "lm_head.weight";
constexpr char kUntiedHeadWeight[] = "head.wte.weight";  // that was tied (Untie)

absl::Status CheckAbsent(Files& files, const std::string& path) {
  if (!files.Exists(path)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(path, " exists; name another place with -o, or remove it first"));
}

}  // namespace

nlohmann::ordered_json HuggingFaceConfig(const GptConfig& config) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", config.vocabulary},
          {"n_positions", config.context},
          {"n_embd", config.width},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"n_inner", nullptr},
          {"activation_function", "gelu_new"},
          {"embd_pdrop", config.dropout},
          {"attn_pdrop", 0.0},
          {"resid_pdrop", config.dropout},
          {"layer_norm_epsilon", 1e-5},
          {"tie_word_embeddings", config.tied_head && !config.untie},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"torch_dtype", "float32"}};
}

absl::StatusOr<std::vector<NamedArray>> HuggingFaceWeights(Files& files,
                                                           const CheckpointModel& model) {
  std::vector<NamedArray> arrays;
  for (int layer = 0; layer < model.graph.size(); ++layer) {
    PENSTOCK_ASSIGN_OR_RETURN(LayerState state,
                              LoadLayer(files, model.directory, model.manifest, layer));
    for (NamedArray& array : state.weights) {
      if (array.name == kUntiedHeadWeight) array.name = kHeadWeight;
      if (array.name != kHeadWeight) array.name = absl::StrCat("transformer.", array.name);
      arrays.push_back(std::move(array));
    }
  }
  return arrays;
}

absl::Status CheckExportsHuggingFace(const ModelGraph& model) {
  if (model.architecture == kGptArchitecture) return absl::OkStatus();
  return absl::UnimplementedError(
      "the model is no GPT, and of others Hugging Face's transformers has no class with these "
      "weights; use the checkpoint's own files, which are safetensors with PyTorch's layouts");
}

absl::StatusOr<ExportedFiles> ExportHuggingFace(Files& files, const CheckpointModel& model,
                                                const std::string& output) {
  PENSTOCK_RETURN_IF_ERROR(Annotate(CheckExportsHuggingFace(model.graph), model.directory));
  const bool names_file = absl::EndsWith(output, ".safetensors");
  const std::string directory =
      names_file ? std::filesystem::path(output).parent_path().string() : output;
  const ExportedFiles exported = {names_file ? output : JoinPath(output, kWeightsName),
                                  JoinPath(directory.empty() ? "." : directory, kConfigName)};
  PENSTOCK_RETURN_IF_ERROR(CheckAbsent(files, exported.weights));
  PENSTOCK_RETURN_IF_ERROR(CheckAbsent(files, exported.config));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<NamedArray> arrays, HuggingFaceWeights(files, model));
  if (!directory.empty()) PENSTOCK_RETURN_IF_ERROR(files.CreateDirectories(directory));
  // Hugging Face refuses files that do not say which framework their layouts are from.
  const std::string header = SafetensorsHeader(arrays, {{"format", "pt"}});
  PENSTOCK_RETURN_IF_ERROR(files.WriteDurably(exported.weights, SafetensorsPieces(header, arrays)));
  const std::string config = HuggingFaceConfig(*model.gpt).dump(2) + "\n";
  PENSTOCK_RETURN_IF_ERROR(files.WriteDurably(exported.config, {config}));
  return exported;
}

}  // namespace penstock
