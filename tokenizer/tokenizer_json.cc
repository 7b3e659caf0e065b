// ParseTokenizerJson: the parts of a tokenizer.json, each by its type.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "checkpoint/strict_json.h"
#include "nlohmann/json.hpp"
#include "tokenizer/byte_letters.h"
#include "tokenizer/byte_pair_model.h"
#include "tokenizer/characters.h"
#include "tokenizer/json_place.h"
#include "tokenizer/json_tokenizer.h"
#include "tokenizer/limits.h"
#include "tokenizer/word_level_model.h"
#include "tokenizer/word_piece_model.h"

namespace penstock {
namespace {

absl::Status Contradicts(const JsonPlace& at, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(at.place(), ": ", what));
}

// The type of a part, which all parts have. "" for a part that is null.
absl::StatusOr<std::string> TypeOf(const JsonPlace& part) {
  if (part.is_absent()) return std::string();
  if (!part.value().is_object()) return part.Wrong("an object or null");
  return part.At("type").Text();
}

absl::Status RefuseType(const JsonPlace& part, absl::string_view type) {
  return part.Refuse(absl::StrCat("the type \"", type, "\""));
}

// That a key is absent, null, or equal to what does nothing.
absl::Status MustBe(const JsonPlace& at, const nlohmann::json& idle) {
  if (at.is_absent() || at.value() == idle) return absl::OkStatus();
  return at.Refuse("another value than " + (idle.is_null() ? "null" : idle.dump()));
}

// `at`, or `otherwise` where it is absent.
absl::StatusOr<bool> TruthOr(const JsonPlace& at, bool otherwise) {
  if (at.is_absent()) return otherwise;
  return at.Truth();
}

// The entries of a part of type Sequence under `key`, or the part itself; none if it is null.
absl::StatusOr<std::vector<JsonPlace>> StepsOf(const JsonPlace& part, absl::string_view key) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string type, TypeOf(part));
  if (type.empty()) return std::vector<JsonPlace>();
  if (type != "Sequence") return std::vector<JsonPlace>{part};
  PENSTOCK_RETURN_IF_ERROR(part.HasOnly({key}));
  const JsonPlace list = part.At(key);
  PENSTOCK_RETURN_IF_ERROR(list.IsList());
  std::vector<JsonPlace> steps;
  for (size_t i = 0; i < list.value().size(); ++i) steps.push_back(list.At(i));
  return steps;
}

absl::StatusOr<Normalizer> ReadNormalizer(const JsonPlace& part) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<JsonPlace> places, StepsOf(part, "normalizers"));
  std::vector<Normalizer::Step> steps;
  for (const JsonPlace& place : places) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string type, TypeOf(place));
    if (type == "NFC") {
      PENSTOCK_RETURN_IF_ERROR(place.HasOnly({}));
      steps.emplace_back(Nfc{});
    } else if (type == "BertNormalizer") {
      PENSTOCK_RETURN_IF_ERROR(
          place.HasOnly({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}));
      BertNormalization bert;
      PENSTOCK_ASSIGN_OR_RETURN(bert.clean_text, TruthOr(place.At("clean_text"), true));
      PENSTOCK_ASSIGN_OR_RETURN(bert.handle_chinese_chars,
                                TruthOr(place.At("handle_chinese_chars"), true));
      PENSTOCK_ASSIGN_OR_RETURN(bert.lowercase, TruthOr(place.At("lowercase"), true));
      PENSTOCK_ASSIGN_OR_RETURN(bert.strip_accents,
                                TruthOr(place.At("strip_accents"), bert.lowercase));
      steps.emplace_back(bert);
    } else {
      return RefuseType(place, type);
    }
  }
  return Normalizer(std::move(steps));
}

// ---- Vocabulary.

absl::Status PutToken(const JsonPlace& at, const std::string& token, int64_t id,
                      TokenizerParts& parts) {
  if (token.empty()) return Contradicts(at, "is the empty token");
  if (token.size() > kTokenBytesMax) {
    return absl::OutOfRangeError(absl::StrCat(at.place(), ": a token has ", token.size(),
                                              " bytes; ", kTokenBytesMax, " are allowed"));
  }
  if (static_cast<size_t>(id) >= parts.tokens.size()) {
    parts.tokens.resize(id + 1);
    parts.is_special.resize(id + 1);
  }
  std::string& place = parts.tokens[id];
  if (!place.empty() && place != token) {
    return Contradicts(at, absl::StrCat("gives id ", id, " to a token, but \"", place,
                                        "\" has it; every token has an id of its own"));
  }
  const auto [found, is_new] = parts.ids.try_emplace(token, static_cast<int32_t>(id));
  if (!is_new && found->second != id) {
    return Contradicts(at, absl::StrCat("gives \"", token, "\" the id ", id, ", but it has ",
                                        found->second, " elsewhere in the file"));
  }
  place = token;
  return absl::OkStatus();
}

absl::Status ReadVocabulary(const JsonPlace& vocabulary, TokenizerParts& parts) {
  if (!vocabulary.value().is_object()) return vocabulary.Wrong("an object of tokens and ids");
  for (const auto& [token, id] : vocabulary.value().items()) {
    const JsonPlace at(id, absl::StrCat(vocabulary.place(), "[\"", token, "\"]"));
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t number, at.Whole(0, kVocabularyMax - 1));
    PENSTOCK_RETURN_IF_ERROR(PutToken(at, token, number, parts));
  }
  if (parts.tokens.empty()) return Contradicts(vocabulary, "is empty");
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const JsonPlace& list, TokenizerParts& parts) {
  if (list.is_absent()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(list.IsList());
  if (list.value().size() > kAddedTokensMax) {
    return absl::OutOfRangeError(absl::StrCat(list.place(), ": has ", list.value().size(),
                                              " tokens; ", kAddedTokensMax, " are allowed"));
  }
  std::vector<std::pair<std::string, int32_t>> before, after;
  for (size_t i = 0; i < list.value().size(); ++i) {
    const JsonPlace at = list.At(i);
    PENSTOCK_RETURN_IF_ERROR(
        at.HasOnly({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
    for (const char* const flag : {"single_word", "lstrip", "rstrip"}) {
      PENSTOCK_RETURN_IF_ERROR(MustBe(at.At(flag), false));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t id, at.At("id").Whole(0, kVocabularyMax - 1));
    PENSTOCK_ASSIGN_OR_RETURN(const std::string content, at.At("content").Text());
    PENSTOCK_ASSIGN_OR_RETURN(const bool is_special, TruthOr(at.At("special"), false));
    PENSTOCK_ASSIGN_OR_RETURN(const bool is_normalized, TruthOr(at.At("normalized"), !is_special));
    if (content.size() > kAddedTokenBytesMax) {
      return absl::OutOfRangeError(absl::StrCat(at.place(), ".content: has ", content.size(),
                                                " bytes; ", kAddedTokenBytesMax, " are allowed"));
    }
    PENSTOCK_RETURN_IF_ERROR(PutToken(at, content, id, parts));
    parts.is_special[id] = is_special;
    if (!is_normalized) {
      before.emplace_back(content, static_cast<int32_t>(id));
      continue;
    }
    std::string buffer;
    const absl::string_view normalized = parts.normalizer.Apply(content, buffer);
    if (!normalized.empty()) after.emplace_back(normalized, static_cast<int32_t>(id));
  }
  parts.before_normalizer = AddedTokens(before);
  parts.after_normalizer = AddedTokens(after);
  return absl::OkStatus();
}

// ---- Byte-level BPE.

absl::Status ReadByteLevel(const JsonPlace& place, std::vector<WordCutter::Step>& steps) {
  PENSTOCK_RETURN_IF_ERROR(place.HasOnly({"add_prefix_space", "trim_offsets", "use_regex"}));
  PENSTOCK_ASSIGN_OR_RETURN(const bool add_space, TruthOr(place.At("add_prefix_space"), true));
  PENSTOCK_ASSIGN_OR_RETURN(const bool use_regex, TruthOr(place.At("use_regex"), true));
  if (add_space) steps.push_back({WordCutter::Step::Kind::kPrefixSpace, {}});
  if (!use_regex) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Compile(kGpt2Expression));
  steps.push_back({WordCutter::Step::Kind::kCut, std::move(pattern)});
  return absl::OkStatus();
}

absl::Status ReadSplit(const JsonPlace& place, std::vector<WordCutter::Step>& steps) {
  PENSTOCK_RETURN_IF_ERROR(place.HasOnly({"pattern", "behavior", "invert"}));
  PENSTOCK_RETURN_IF_ERROR(MustBe(place.At("behavior"), "Isolated"));
  PENSTOCK_RETURN_IF_ERROR(MustBe(place.At("invert"), false));
  if (place.At("behavior").is_absent()) return place.At("behavior").Wrong("\"Isolated\"");
  const JsonPlace pattern = place.At("pattern");
  PENSTOCK_RETURN_IF_ERROR(pattern.HasOnly({"Regex"}));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string expression, pattern.At("Regex").Text());
  absl::StatusOr<Pattern> compiled = Pattern::Compile(expression);
  if (!compiled.ok()) return Annotate(compiled.status(), pattern.At("Regex").place());
  steps.push_back({WordCutter::Step::Kind::kCut, *std::move(compiled)});
  return absl::OkStatus();
}

absl::StatusOr<WordCutter> ReadByteLevelCutter(const JsonPlace& part) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<JsonPlace> places, StepsOf(part, "pretokenizers"));
  std::vector<WordCutter::Step> steps;
  bool is_byte_level = false;
  for (const JsonPlace& place : places) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string type, TypeOf(place));
    if (is_byte_level) return place.Refuse("a pre_tokenizer behind ByteLevel");
    if (type == "ByteLevel") {
      PENSTOCK_RETURN_IF_ERROR(ReadByteLevel(place, steps));
      is_byte_level = true;
    } else if (type == "Split") {
      PENSTOCK_RETURN_IF_ERROR(ReadSplit(place, steps));
    } else {
      return RefuseType(place, type);
    }
  }
  if (!is_byte_level) return part.Refuse("BPE without the pre_tokenizer ByteLevel");
  return WordCutter(std::move(steps));
}

// Both tokens of a merge.
absl::StatusOr<std::pair<std::string, std::string>> ReadMerge(const JsonPlace& at) {
  if (at.value().is_string()) {
    const std::vector<std::string> both = absl::StrSplit(at.value().get<std::string>(), ' ');
    if (both.size() == 2) return std::pair(both[0], both[1]);
  } else if (at.value().is_array() && at.value().size() == 2) {
    PENSTOCK_ASSIGN_OR_RETURN(std::string left, at.At(size_t{0}).Text());
    PENSTOCK_ASSIGN_OR_RETURN(std::string right, at.At(size_t{1}).Text());
    return std::pair(std::move(left), std::move(right));
  }
  return at.Wrong("two tokens, as \"a b\" or [\"a\", \"b\"]");
}

absl::StatusOr<std::vector<BytePairs::Merge>> ReadMerges(const JsonPlace& list,
                                                         const TokenizerParts& parts) {
  PENSTOCK_RETURN_IF_ERROR(list.IsList());
  std::vector<BytePairs::Merge> merges;
  merges.reserve(list.value().size());
  for (size_t i = 0; i < list.value().size(); ++i) {
    const JsonPlace at = list.At(i);
    PENSTOCK_ASSIGN_OR_RETURN(const auto tokens, ReadMerge(at));
    int32_t ids[3];
    const std::string texts[3] = {tokens.first, tokens.second, tokens.first + tokens.second};
    for (int k = 0; k < 3; ++k) {
      const auto found = parts.ids.find(texts[k]);
      if (found == parts.ids.end()) {
        return Contradicts(at, absl::StrCat("has \"", texts[k], "\", which is not in model.vocab"));
      }
      ids[k] = found->second;
    }
    merges.push_back({ids[0], ids[1], ids[2]});
  }
  return merges;
}

absl::Status ReadBytePairModel(const JsonPlace& root, TokenizerParts& parts) {
  const JsonPlace model = root.At("model");
  PENSTOCK_RETURN_IF_ERROR(
      model.HasOnly({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                     "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  PENSTOCK_RETURN_IF_ERROR(MustBe(model.At("dropout"), 0.0));
  PENSTOCK_RETURN_IF_ERROR(MustBe(model.At("continuing_subword_prefix"), ""));
  PENSTOCK_RETURN_IF_ERROR(MustBe(model.At("end_of_word_suffix"), ""));
  PENSTOCK_RETURN_IF_ERROR(MustBe(model.At("byte_fallback"), false));
  PENSTOCK_ASSIGN_OR_RETURN(const bool ignore_merges, TruthOr(model.At("ignore_merges"), false));
  PENSTOCK_ASSIGN_OR_RETURN(WordCutter cutter, ReadByteLevelCutter(root.At("pre_tokenizer")));
  std::array<int32_t, 256> byte_ids;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = parts.ids.find(LettersOfBytes(std::string(1, static_cast<char>(byte))));
    if (found == parts.ids.end()) {
      return Contradicts(model.At("vocab"),
                         absl::StrCat("has no token for byte ", byte,
                                      "; train it with the initial_alphabet of ByteLevel"));
    }
    byte_ids[byte] = found->second;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<BytePairs::Merge> merges,
                            ReadMerges(model.At("merges"), parts));
  absl::flat_hash_map<std::string, int32_t> whole_words;
  if (ignore_merges) {
    for (const auto& [token, id] : parts.ids) {
      const std::optional<std::string> bytes = BytesOfLetters(token);
      if (bytes.has_value()) whole_words.emplace(*bytes, id);
    }
  }
  const JsonPlace decoder = root.At("decoder");
  PENSTOCK_ASSIGN_OR_RETURN(const std::string decoder_type, TypeOf(decoder));
  if (decoder_type != "ByteLevel") {
    return decoder_type.empty() ? decoder.Wrong("the decoder ByteLevel")
                                : RefuseType(decoder, decoder_type);
  }
  PENSTOCK_RETURN_IF_ERROR(decoder.HasOnly({"add_prefix_space", "trim_offsets", "use_regex"}));
  parts.model = std::make_unique<BytePairModel>(std::move(cutter), BytePairs(byte_ids, merges),
                                                std::move(whole_words));
  return absl::OkStatus();
}

// ---- WordPiece.

absl::Status ReadWordPieceModel(const JsonPlace& root, TokenizerParts& parts) {
  const JsonPlace model = root.At("model");
  PENSTOCK_RETURN_IF_ERROR(model.HasOnly(
      {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"}));
  const JsonPlace words = root.At("pre_tokenizer");
  PENSTOCK_ASSIGN_OR_RETURN(const std::string words_type, TypeOf(words));
  if (words_type != "BertPreTokenizer") {
    return words_type.empty() ? words.Refuse("WordPiece without the pre_tokenizer BertPreTokenizer")
                              : RefuseType(words, words_type);
  }
  PENSTOCK_RETURN_IF_ERROR(words.HasOnly({}));
  WordPieceModel::Options options;
  PENSTOCK_ASSIGN_OR_RETURN(parts.unknown, model.At("unk_token").Text());
  const auto unknown = parts.ids.find(parts.unknown);
  if (unknown == parts.ids.end()) {
    return Contradicts(model.At("unk_token"),
                       absl::StrCat("is \"", parts.unknown, "\", which is not in model.vocab"));
  }
  options.unknown = unknown->second;
  PENSTOCK_ASSIGN_OR_RETURN(options.continuing_prefix,
                            model.At("continuing_subword_prefix").Text());
  PENSTOCK_ASSIGN_OR_RETURN(options.word_characters_max,
                            model.At("max_input_chars_per_word").Whole(0, 1'000'000));
  const JsonPlace decoder = root.At("decoder");
  PENSTOCK_ASSIGN_OR_RETURN(const std::string decoder_type, TypeOf(decoder));
  if (decoder_type != "WordPiece") {
    return decoder_type.empty() ? decoder.Wrong("the decoder WordPiece")
                                : RefuseType(decoder, decoder_type);
  }
  PENSTOCK_RETURN_IF_ERROR(decoder.HasOnly({"prefix", "cleanup"}));
  PENSTOCK_ASSIGN_OR_RETURN(options.decoder_prefix, decoder.At("prefix").Text());
  PENSTOCK_ASSIGN_OR_RETURN(options.decoder_cleanup, TruthOr(decoder.At("cleanup"), true));
  const JsonPlace vocabulary = model.At("vocab");
  std::vector<std::pair<absl::string_view, int32_t>> pieces;
  for (const auto& [token, id] : vocabulary.value().items()) {
    pieces.emplace_back(parts.ids.find(token)->first, id.get<int32_t>());
  }
  parts.model = std::make_unique<WordPieceModel>(pieces, std::move(options));
  return absl::OkStatus();
}

// ---- WordLevel.

absl::Status ReadWordLevelModel(const JsonPlace& root, TokenizerParts& parts) {
  const JsonPlace model = root.At("model");
  PENSTOCK_RETURN_IF_ERROR(model.HasOnly({"unk_token", "vocab"}));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string unknown, model.At("unk_token").Text());
  std::optional<int32_t> unknown_id;
  const auto found = parts.ids.find(unknown);
  if (found != parts.ids.end()) {
    parts.unknown = unknown;
    unknown_id = found->second;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<JsonPlace> places,
                            StepsOf(root.At("pre_tokenizer"), "pretokenizers"));
  std::vector<WordCutter::Step> steps;
  for (const JsonPlace& place : places) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string type, TypeOf(place));
    if (type != "Split") return RefuseType(place, type);
    PENSTOCK_RETURN_IF_ERROR(ReadSplit(place, steps));
  }
  const JsonPlace decoder = root.At("decoder");
  PENSTOCK_ASSIGN_OR_RETURN(const std::string decoder_type, TypeOf(decoder));
  if (decoder_type != "Fuse") {
    return decoder_type.empty() ? decoder.Refuse("WordLevel without the decoder Fuse")
                                : RefuseType(decoder, decoder_type);
  }
  PENSTOCK_RETURN_IF_ERROR(decoder.HasOnly({}));
  parts.model =
      std::make_unique<WordLevelModel>(WordCutter(std::move(steps)), parts.ids, unknown_id);
  return absl::OkStatus();
}

// ---- Framing.

absl::Status ReadTemplate(const JsonPlace& place, TokenizerParts& parts) {
  PENSTOCK_RETURN_IF_ERROR(place.HasOnly({"single", "pair", "special_tokens"}));
  const JsonPlace single = place.At("single");
  PENSTOCK_RETURN_IF_ERROR(single.IsList());
  bool is_behind = false;
  for (size_t i = 0; i < single.value().size(); ++i) {
    const JsonPlace piece = single.At(i);
    PENSTOCK_RETURN_IF_ERROR(piece.HasOnly({"SpecialToken", "Sequence"}));
    if (!piece.At("Sequence").is_absent()) {
      if (is_behind) return piece.Refuse("the text a second time");
      is_behind = true;
      continue;
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::string name, piece.At("SpecialToken").At("id").Text());
    const JsonPlace ids = place.At("special_tokens").At(name).At("ids");
    PENSTOCK_RETURN_IF_ERROR(ids.IsList());
    for (size_t k = 0; k < ids.value().size(); ++k) {
      PENSTOCK_ASSIGN_OR_RETURN(const int64_t id, ids.At(k).Whole(0, kVocabularyMax - 1));
      if (id >= static_cast<int64_t>(parts.tokens.size()) || parts.tokens[id].empty()) {
        return Contradicts(ids.At(k), absl::StrCat("is ", id, ", which no token has"));
      }
      (is_behind ? parts.framing_after : parts.framing_before).push_back(static_cast<int32_t>(id));
    }
  }
  if (!is_behind) return Contradicts(single, "leaves the text out");
  return absl::OkStatus();
}

absl::Status ReadFraming(const JsonPlace& part, TokenizerParts& parts) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<JsonPlace> places, StepsOf(part, "processors"));
  bool has_template = false;
  for (const JsonPlace& place : places) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string type, TypeOf(place));
    if (type == "ByteLevel") {  // moves offsets alone
      PENSTOCK_RETURN_IF_ERROR(place.HasOnly({"add_prefix_space", "trim_offsets", "use_regex"}));
    } else if (type == "TemplateProcessing" && !has_template) {
      PENSTOCK_RETURN_IF_ERROR(ReadTemplate(place, parts));
      has_template = true;
    } else {
      return RefuseType(place, type);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerJson(absl::string_view json) {
  PENSTOCK_ASSIGN_OR_RETURN(
      const nlohmann::json parsed,
      ParseStrictJson(json, {.depth_max = 12, .values_max = kTokenizerJsonValuesMax}));
  const JsonPlace root(parsed, "");
  PENSTOCK_RETURN_IF_ERROR(
      root.HasOnly({"version", "truncation", "padding", "added_tokens", "normalizer",
                    "pre_tokenizer", "post_processor", "decoder", "model"}));
  PENSTOCK_RETURN_IF_ERROR(MustBe(root.At("version"), "1.0"));
  PENSTOCK_RETURN_IF_ERROR(MustBe(root.At("truncation"), nullptr));
  PENSTOCK_RETURN_IF_ERROR(MustBe(root.At("padding"), nullptr));
  const JsonPlace model = root.At("model");
  if (!model.value().is_object()) return model.Wrong("an object");
  PENSTOCK_ASSIGN_OR_RETURN(const std::string type, TypeOf(model));
  absl::Status (*read_model)(const JsonPlace&, TokenizerParts&) = nullptr;
  if (type == "BPE") read_model = ReadBytePairModel;
  if (type == "WordPiece") read_model = ReadWordPieceModel;
  if (type == "WordLevel") read_model = ReadWordLevelModel;
  if (read_model == nullptr) return RefuseType(model, type);
  TokenizerParts parts;
  PENSTOCK_RETURN_IF_ERROR(ReadVocabulary(model.At("vocab"), parts));
  PENSTOCK_ASSIGN_OR_RETURN(parts.normalizer, ReadNormalizer(root.At("normalizer")));
  PENSTOCK_RETURN_IF_ERROR(read_model(root, parts));
  PENSTOCK_RETURN_IF_ERROR(ReadAddedTokens(root.At("added_tokens"), parts));
  PENSTOCK_RETURN_IF_ERROR(ReadFraming(root.At("post_processor"), parts));
  return std::make_unique<JsonTokenizer>(std::move(parts));
}

}  // namespace penstock
