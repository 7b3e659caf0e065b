#include "inference/hugging_face.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/strict_json.h"
#include "checkpoint/weight_files.h"
#include "inference/hugging_face_config.h"
#include "inference/hugging_face_weights.h"
#include "job/hugging_face/read_config.h"
#include "job/model_graph.h"
#include "model/families/bert.h"
#include "model/families/llama.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr char kGenerationName[] = "generation_config.json";
constexpr int64_t kSourceFileBytesMax = 256 << 20;

// What a directory has beside the model: how text becomes tokens, and how it is generated.
constexpr const char* kTokenizerNames[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "tokenizer.model",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "chat_template.jinja",
                                           kGenerationName};

// The family of a checkpoint's model, with all its numbers.
absl::StatusOr<v1::ModelSpec> FamilyOf(const CheckpointModel& model) {
  if (!model.manifest.family.empty()) return FamilyOfText(model.manifest.family);
  v1::ModelSpec family;
  const GptConfig& config = *model.gpt;
  v1::GptSpec& gpt = *family.mutable_gpt();
  gpt.set_layers(config.layers);
  gpt.set_width(config.width);
  gpt.set_heads(config.heads);
  gpt.set_context(config.context);
  gpt.set_vocabulary(config.vocabulary);
  gpt.set_dropout(config.dropout);
  gpt.set_tied_head(config.tied_head);
  family.set_untie(config.untie);
  return family;
}

// Where the other files come from; empty: nowhere.
absl::StatusOr<std::string> SourceOf(Files& files, const v1::ModelSpec& family,
                                     const std::string& named) {
  const std::string& directory = named.empty() ? family.pretrained().directory() : named;
  if (directory.empty() || files.Exists(JoinPath(directory, kHuggingFaceConfigName))) {
    return directory;
  }
  if (named.empty()) return std::string();
  return absl::NotFoundError(absl::StrCat(directory, " has no ", kHuggingFaceConfigName,
                                          "; name a directory of transformers"));
}

// config.json of the source; null: there is none.
absl::StatusOr<Json> ReadSourceConfig(Files& files, const std::string& source) {
  if (source.empty()) return Json();
  const std::string path = JoinPath(source, kHuggingFaceConfigName);
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files.Read(path, kSourceFileBytesMax));
  absl::StatusOr<Json> json = ParseStrictJson(text, JsonLimits());
  if (!json.ok()) return Annotate(json.status(), path);
  return json;
}

// The directory and the name of the weights' file that `output` means.
std::pair<std::string, std::string> PlacesOf(const std::string& output) {
  if (!absl::EndsWith(output, ".safetensors")) return {output, kWeightsName};
  const std::filesystem::path path(output);
  const std::string directory = path.parent_path().string();
  return {directory.empty() ? "." : directory, path.filename().string()};
}

struct TextFile {
  std::string path;
  std::string content;
};

// Returns the files beside the weights: the checkpoint's own tokenizer, those of the source, and a generation_config.json for a
// language model whose source has none.
absl::StatusOr<std::vector<TextFile>> OtherFiles(Files& files, const CheckpointModel& model,
                                                 const std::string& source,
                                                 const std::string& directory,
                                                 const v1::ModelSpec& family,
                                                 const nlohmann::ordered_json& config) {
  std::vector<TextFile> others;
  bool generates = false;
  for (const CheckpointFile& file : model.manifest.attached) {
    PENSTOCK_ASSIGN_OR_RETURN(
        std::string content, files.Read(JoinPath(model.directory, file.name), kSourceFileBytesMax));
    others.push_back({JoinPath(directory, file.name), std::move(content)});
  }
  const std::string own = others.empty() ? "" : others.front().path;
  for (const char* name : kTokenizerNames) {
    if (JoinPath(directory, name) == own) continue;
    const std::string path = JoinPath(source, name);
    if (source.empty() || !files.Exists(path)) continue;
    PENSTOCK_ASSIGN_OR_RETURN(std::string content, files.Read(path, kSourceFileBytesMax));
    others.push_back({JoinPath(directory, name), std::move(content)});
    generates = generates || name == absl::string_view(kGenerationName);
  }
  if (generates || family.has_bert()) return others;
  nlohmann::ordered_json generation = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (!config.at(key).is_null()) generation[key] = config.at(key);
  }
  others.push_back({JoinPath(directory, kGenerationName), generation.dump(2) + "\n"});
  return others;
}

}  // namespace

absl::Status CheckExportsHuggingFace(const ModelGraph& model) {
  for (const char* known : {kGptArchitecture, kLlamaArchitecture, kBertArchitecture}) {
    if (model.architecture == known) return absl::OkStatus();
  }
  return absl::UnimplementedError(
      "the model is no gpt, llama or bert, and of others Hugging Face's transformers has no class "
      "with these weights; use the checkpoint's own files, which are safetensors with PyTorch's "
      "layouts");
}

absl::StatusOr<ExportedFiles> ExportHuggingFace(Files& files, const CheckpointModel& model,
                                                const HuggingFaceOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(Annotate(CheckExportsHuggingFace(model.graph), model.directory));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec family, FamilyOf(model));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string source, SourceOf(files, family, options.source));
  PENSTOCK_ASSIGN_OR_RETURN(const Json source_config, ReadSourceConfig(files, source));
  absl::StatusOr<nlohmann::ordered_json> config = HuggingFaceConfig(family, source_config);
  if (!config.ok()) return Annotate(config.status(), model.directory);
  const auto [directory, file] = PlacesOf(options.output);
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<TextFile> texts,
                            OtherFiles(files, model, source, directory, family, *config));
  ExportedFiles exported = {.config = JoinPath(directory, kHuggingFaceConfigName)};
  for (const TextFile& text : texts) exported.others.push_back(text.path);
  texts.push_back({exported.config, config->dump(2) + "\n"});
  for (const TextFile& text : texts) PENSTOCK_RETURN_IF_ERROR(CheckAbsent(files, text.path));
  PENSTOCK_RETURN_IF_ERROR(files.CreateDirectories(directory));
  const auto name = [&family](absl::string_view parameter) {
    return HuggingFaceName(family, parameter);
  };
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> weights,
                            WriteWeights(files, model,
                                         {.directory = directory,
                                          .file = file,
                                          .shard_bytes_max = options.shard_bytes_max,
                                          .name = name}));
  exported.weights = weights.front();
  exported.others.insert(exported.others.end(), weights.begin() + 1, weights.end());
  for (const TextFile& text : texts) {
    PENSTOCK_RETURN_IF_ERROR(files.WriteDurably(text.path, {text.content}));
  }
  return exported;
}

}  // namespace penstock
