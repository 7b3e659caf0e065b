// LoadTokenizer, and the tokenizer of bytes.
#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/json_tokenizer.h"
#include "tokenizer/limits.h"
#include "tokenizer/tokenizer.h"

namespace penstock {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, Framing) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    return ids;
  }
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, SpecialTokens) const override {
    std::string text;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] > 255) return NoSuchToken(i, ids[i], vocabulary_size());
      text += static_cast<char>(ids[i]);
    }
    return text;
  }
  bool can_be_cut() const override { return true; }
  int64_t vocabulary_size() const override { return 256; }
  std::optional<int32_t> IdOf(absl::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<uint8_t>(token[0]);
  }
  std::optional<int32_t> SpecialId(SpecialToken) const override { return std::nullopt; }
};

// In a directory, the first that is there.
constexpr const char* kNames[] = {kTokenizerJsonName, kTokenizerModelName, "spiece.model",
                                  "sentencepiece.bpe.model"};

bool IsJson(absl::string_view file) { return absl::EndsWith(file, ".json"); }

// Where a tokenizer is.
struct Place {
  std::string file;
  std::string instead =
      {};  // the tokenizer.model that counts if `file` has a part that is not known here; empty: none
};

absl::StatusOr<Place> PlaceOf(Files& files, const std::string& path) {
  if (IsJson(path) || absl::EndsWith(path, ".model")) return Place{path};
  const absl::StatusOr<std::vector<std::string>> entries = files.List(path);
  if (!entries.ok()) {
    return absl::Status(
        entries.status().code(),
        absl::StrCat("no tokenizer: expected a file that ends with .json or .model, or a "
                     "directory with a tokenizer.json or tokenizer.model: ",
                     entries.status().message()));
  }
  for (const char* const name : kNames) {
    std::string file = JoinPath(path, name);
    if (!files.Exists(file)) continue;
    // Llama 2, Mistral and Gemma have both, with the same ids. A file with another name may have other ids than the
    // tokenizer.json beside it, as that of XLM-R, and does not take its place.
    std::string model = JoinPath(path, kTokenizerModelName);
    const bool has_both = IsJson(file) && files.Exists(model);
    return Place{std::move(file), has_both ? std::move(model) : ""};
  }
  return absl::NotFoundError(absl::StrCat(
      path, ": has no tokenizer.json or tokenizer.model; name the file if it has another name"));
}

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

absl::Span<const char* const> TokenizerFileNames() { return kNames; }

const char* UsualTokenizerName(absl::string_view file) {
  return IsJson(file) ? kTokenizerJsonName : kTokenizerModelName;
}

absl::StatusOr<std::string> FindTokenizerFile(Files& files, const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const Place place, PlaceOf(files, path));
  if (place.instead.empty()) return place.file;
  // What else is wrong with it is for its reader to say.
  const absl::StatusOr<std::string> content = files.Read(place.file, kTokenizerFileBytesMax);
  const bool is_unsupported =
      content.ok() && absl::IsUnimplemented(ParseTokenizerJson(*content).status());
  return is_unsupported ? place.instead : place.file;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerFile(Files& files, const std::string& file,
                                                              absl::string_view content) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      IsJson(file) ? ParseTokenizerJson(content) : ParseSentencePieceModel(content);
  if (tokenizer.ok()) return tokenizer;
  const std::string model =
      JoinPath(std::filesystem::path(file).parent_path().string(), kTokenizerModelName);
  if (IsJson(file) && absl::IsUnimplemented(tokenizer.status()) && files.Exists(model)) {
    return absl::UnimplementedError(absl::StrCat(file, ": ", tokenizer.status().message(),
                                                 "; name ", model, ", which is beside it"));
  }
  return Annotate(tokenizer.status(), file);
}

absl::StatusOr<TokenizerFile> OpenTokenizerFile(
    Files& files, const std::string& path,
    absl::FunctionRef<absl::Status(const TokenizerFile& file)> check) {
  PENSTOCK_ASSIGN_OR_RETURN(const Place place, PlaceOf(files, path));
  TokenizerFile file = {.path = place.file};
  PENSTOCK_ASSIGN_OR_RETURN(file.content, files.Read(file.path, kTokenizerFileBytesMax));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer;
  bool is_parsed = false;
  if (!place.instead.empty()) {
    tokenizer = ParseTokenizerFile(files, file.path, file.content);
    is_parsed = !absl::IsUnimplemented(tokenizer.status());
    if (!is_parsed) {
      file.path = place.instead;
      PENSTOCK_ASSIGN_OR_RETURN(file.content, files.Read(file.path, kTokenizerFileBytesMax));
    }
  }
  PENSTOCK_RETURN_IF_ERROR(check(file));
  if (!is_parsed) tokenizer = ParseTokenizerFile(files, file.path, file.content);
  PENSTOCK_RETURN_IF_ERROR(tokenizer.status());
  file.tokenizer = *std::move(tokenizer);
  return file;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(Files& files, const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(
      TokenizerFile file,
      OpenTokenizerFile(files, path, [](const TokenizerFile&) { return absl::OkStatus(); }));
  return std::move(file.tokenizer);
}

}  // namespace penstock
