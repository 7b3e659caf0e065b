#include "inference/hugging_face_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/status.h"
#include "job/hugging_face/read_config.h"
#include "model/families/bert.h"
#include "tokenizer/sentence_piece_file.h"

namespace penstock {
namespace {

using OrderedJson = nlohmann::ordered_json;
using TokenizerFiles = std::vector<ExportedTokenizer::File>;

constexpr char kTokenizerConfigName[] = "tokenizer_config.json";

// What save_pretrained writes of a tokenizer.
constexpr const char* kSourceFiles[] = {
    kTokenizerJsonName,  kTokenizerConfigName, "special_tokens_map.json",
    "added_tokens.json", kTokenizerModelName,  "vocab.json",
    "merges.txt",        "vocab.txt",          "chat_template.jinja"};

// Those that there is no tokenizer without.
constexpr const char* kVocabularyFiles[] = {kTokenizerJsonName, kTokenizerModelName, "vocab.json",
                                            "vocab.txt"};

bool HasVocabulary(const TokenizerFiles& files) {
  return std::any_of(files.begin(), files.end(), [](const auto& file) {
    return std::count(std::begin(kVocabularyFiles), std::end(kVocabularyFiles), file.name) > 0;
  });
}

// Whether each of `some` is among `all`, byte by byte.
bool AreAmong(const TokenizerFiles& some, const TokenizerFiles& all) {
  return std::all_of(some.begin(), some.end(), [&](const auto& file) {
    return std::any_of(all.begin(), all.end(), [&](const auto& other) {
      return other.name == file.name && other.content == file.content;
    });
  });
}

absl::StatusOr<TokenizerFiles> FilesOfSource(Files& files, const std::string& source) {
  TokenizerFiles found;
  if (source.empty()) return found;
  for (const char* name : kSourceFiles) {
    const std::string path = JoinPath(source, name);
    if (!files.Exists(path)) continue;
    PENSTOCK_ASSIGN_OR_RETURN(std::string content, files.Read(path, kSourceFileBytesMax));
    found.push_back({name, std::move(content)});
  }
  return found;
}

absl::StatusOr<TokenizerFiles> FilesOfCheckpoint(Files& files, const CheckpointModel& model) {
  TokenizerFiles found;
  for (const CheckpointFile& attached : model.manifest.attached) {
    PENSTOCK_ASSIGN_OR_RETURN(
        std::string content,
        files.Read(JoinPath(model.directory, attached.name), kSourceFileBytesMax));
    found.push_back({attached.name, std::move(content)});
  }
  return found;
}

constexpr std::pair<const char*, SpecialToken> kTokensOfConfig[] = {
    {"bos_token", SpecialToken::kBos},
    {"eos_token", SpecialToken::kEos},
    {"unk_token", SpecialToken::kUnknown},
    {"pad_token", SpecialToken::kPadding}};

// tokenizer_config.json for a .model of SentencePiece. LlamaTokenizer adds tokens with the usual names where nothing is said, so
// that those which the file lacks are said to be none; and a beginning, which texts are not trained with here.
absl::StatusOr<OrderedJson> SentencePieceConfig(const Tokenizer& tokenizer,
                                                absl::string_view model) {
  PENSTOCK_ASSIGN_OR_RETURN(const SentencePieceFile file, ReadSentencePieceFile(model));
  OrderedJson config = {{"tokenizer_class", "LlamaTokenizer"},
                        {"add_bos_token", false},
                        {"add_eos_token", false},
                        {"clean_up_tokenization_spaces", false},
                        {"legacy", true},  // cuts a text as SentencePiece does
                        {"model_input_names", {"input_ids", "attention_mask"}}};
  for (const auto& [key, which] : kTokensOfConfig) {
    const std::optional<int32_t> id = tokenizer.SpecialId(which);
    // The piece, and not what it decodes to: an unknown token's is a sign in a text.
    config[key] = id.has_value() ? OrderedJson(file.pieces[*id].text) : OrderedJson();
  }
  return config;
}

// tokenizer_config.json for a tokenizer.json, which does not say what its tokens are for.
absl::StatusOr<OrderedJson> TokenizerConfig(const Tokenizer& tokenizer, bool has_segments) {
  OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                        {"clean_up_tokenization_spaces", false}};
  // Models without segments that are given some add them to their input, or refuse them.
  config["model_input_names"] =
      has_segments ? OrderedJson::array({"input_ids", "token_type_ids", "attention_mask"})
                   : OrderedJson::array({"input_ids", "attention_mask"});
  std::vector<std::pair<const char*, SpecialToken>> tokens(std::begin(kTokensOfConfig),
                                                           std::end(kTokensOfConfig));
  tokens.emplace_back("mask_token", SpecialToken::kMask);
  for (const auto& [key, which] : tokens) {
    const std::optional<int32_t> id = tokenizer.SpecialId(which);
    if (!id.has_value()) continue;
    PENSTOCK_ASSIGN_OR_RETURN(config[key], tokenizer.Decode({*id}, SpecialTokens::kShow));
  }
  constexpr std::pair<const char*, const char*> kTokensOfBert[] = {{"cls_token", "[CLS]"},
                                                                   {"sep_token", "[SEP]"}};
  for (const auto& [key, token] : kTokensOfBert) {
    if (tokenizer.IdOf(token).has_value()) config[key] = token;
  }
  return config;
}

}  // namespace

absl::StatusOr<ExportedTokenizer> TokenizerForExport(Files& files, const CheckpointModel& model,
                                                     const std::string& source, bool overrides) {
  ExportedTokenizer exported;
  PENSTOCK_ASSIGN_OR_RETURN(exported.files, FilesOfSource(files, source));
  PENSTOCK_ASSIGN_OR_RETURN(TokenizerFiles own, FilesOfCheckpoint(files, model));
  const bool is_overridden = overrides && HasVocabulary(exported.files);
  if (is_overridden || AreAmong(own, exported.files)) {
    const bool is_known = source.empty() || files.Exists(JoinPath(source, kHuggingFaceConfigName));
    if (is_known) return exported;
    PENSTOCK_ASSIGN_OR_RETURN(exported.own, LoadTokenizer(files, source));
  } else {
    exported.files = std::move(own);
    PENSTOCK_ASSIGN_OR_RETURN(exported.own, LoadTokenizer(files, model.directory));
  }
  const auto has = [&](const char* name) {
    return std::any_of(exported.files.begin(), exported.files.end(),
                       [&](const auto& file) { return file.name == name; });
  };
  if (has(kTokenizerConfigName)) return exported;
  if (has(kTokenizerJsonName)) {
    const bool is_bert = model.graph.architecture == kBertArchitecture;
    PENSTOCK_ASSIGN_OR_RETURN(const OrderedJson config, TokenizerConfig(*exported.own, is_bert));
    exported.files.push_back({kTokenizerConfigName, config.dump(2) + "\n"});
    return exported;
  }
  const auto pieces =
      std::find_if(exported.files.begin(), exported.files.end(),
                   [](const auto& file) { return file.name == kTokenizerModelName; });
  if (pieces == exported.files.end()) return exported;
  PENSTOCK_ASSIGN_OR_RETURN(const OrderedJson config,
                            SentencePieceConfig(*exported.own, pieces->content));
  exported.files.push_back({kTokenizerConfigName, config.dump(2) + "\n"});
  return exported;
}

void SetSpecialTokens(const Tokenizer& tokenizer, nlohmann::json& config) {
  constexpr std::pair<const char*, SpecialToken> kIds[] = {
      {"bos_token_id", SpecialToken::kBos},
      {"eos_token_id", SpecialToken::kEos},
      {"pad_token_id", SpecialToken::kPadding}};
  if (!config.is_object()) config = nlohmann::json::object();
  for (const auto& [key, which] : kIds) {
    const std::optional<int32_t> id = tokenizer.SpecialId(which);
    config[key] = id.has_value() ? nlohmann::json(*id) : nlohmann::json();
  }
}

}  // namespace penstock
