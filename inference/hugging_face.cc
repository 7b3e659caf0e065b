#include "inference/hugging_face.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/strict_json.h"
#include "checkpoint/weight_files.h"
#include "inference/hugging_face_config.h"
#include "inference/hugging_face_tokenizer.h"
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
  const auto has = [&](const char* name) { return files.Exists(JoinPath(directory, name)); };
  if (has(kTokenizerJsonName) || has(kTokenizerModelName)) return directory;
  return absl::NotFoundError(absl::StrCat(directory, " has neither ", kHuggingFaceConfigName,
                                          " nor ", kTokenizerJsonName, " nor ", kTokenizerModelName,
                                          "; name a directory of transformers"));
}

// config.json of the source; null: there is none.
absl::StatusOr<Json> ReadSourceConfig(Files& files, const std::string& source) {
  const std::string path = JoinPath(source, kHuggingFaceConfigName);
  if (source.empty() || !files.Exists(path)) return Json();
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

// generation_config.json for a language model; empty: it has none. That of the source is taken if its tokenizer is: it has
// the ids of tokens.
absl::StatusOr<std::string> GenerationConfig(Files& files, const std::string& source,
                                             const v1::ModelSpec& family,
                                             const nlohmann::ordered_json& config) {
  const std::string path = JoinPath(source, kGenerationName);
  if (!source.empty() && files.Exists(path)) return files.Read(path, kSourceFileBytesMax);
  if (family.has_bert()) return std::string();
  nlohmann::ordered_json generation = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (!config.at(key).is_null()) generation[key] = config.at(key);
  }
  return generation.dump(2) + "\n";
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
  PENSTOCK_ASSIGN_OR_RETURN(Json source_config, ReadSourceConfig(files, source));
  PENSTOCK_ASSIGN_OR_RETURN(
      ExportedTokenizer tokenizer,
      TokenizerForExport(files, model, source, /*overrides=*/!options.source.empty()));
  if (tokenizer.own != nullptr) SetSpecialTokens(*tokenizer.own, source_config);
  absl::StatusOr<nlohmann::ordered_json> config = HuggingFaceConfig(family, source_config);
  if (!config.ok()) return Annotate(config.status(), model.directory);
  PENSTOCK_ASSIGN_OR_RETURN(
      std::string generation,
      GenerationConfig(files, tokenizer.own == nullptr ? source : "", family, *config));
  const auto [directory, file] = PlacesOf(options.output);
  std::vector<TextFile> texts;
  for (ExportedTokenizer::File& part : tokenizer.files) {
    texts.push_back({JoinPath(directory, part.name), std::move(part.content)});
  }
  if (!generation.empty()) {
    texts.push_back({JoinPath(directory, kGenerationName), std::move(generation)});
  }
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
