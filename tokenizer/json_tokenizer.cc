#include "tokenizer/json_tokenizer.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {

absl::Status NoSuchToken(size_t index, int32_t id, int64_t vocabulary_size) {
  return absl::OutOfRangeError(absl::StrCat("id ", id, " at place ", index,
                                            " is no token; the ids of this tokenizer are below ",
                                            vocabulary_size, ", so the ids are of another one"));
}

absl::Span<const char* const> UsualNames(SpecialToken which) {
  static constexpr const char* kBos[] = {"<s>", "<|begin_of_text|>", "<|startoftext|>", "<bos>"};
  static constexpr const char* kEos[] = {"</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>"};
  static constexpr const char* kPadding[] = {"<pad>", "[PAD]", "<|pad|>"};
  static constexpr const char* kUnknown[] = {"<unk>", "[UNK]"};
  static constexpr const char* kMask[] = {"<mask>", "[MASK]"};
  switch (which) {
    case SpecialToken::kBos:
      return kBos;
    case SpecialToken::kEos:
      return kEos;
    case SpecialToken::kPadding:
      return kPadding;
    case SpecialToken::kUnknown:
      return kUnknown;
    case SpecialToken::kMask:
      return kMask;
  }
  return {};
}

absl::StatusOr<std::vector<int32_t>> JsonTokenizer::Encode(absl::string_view text,
                                                           Framing framing) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  if (framing == Framing::kOfFile) ids = parts_.framing_before;
  std::string buffer;
  for (size_t at = 0; at < text.size();) {
    const AddedTokens::Found raw = parts_.before_normalizer.Find(text, at);
    const absl::string_view part = parts_.normalizer.Apply(text.substr(at, raw.begin - at), buffer);
    for (size_t inner = 0; inner < part.size();) {
      const AddedTokens::Found found = parts_.after_normalizer.Find(part, inner);
      if (found.begin > inner) {
        PENSTOCK_RETURN_IF_ERROR(
            parts_.model->Encode(part.substr(inner, found.begin - inner), ids));
      }
      if (found.id >= 0) ids.push_back(found.id);
      inner = found.end;
    }
    if (raw.id >= 0) ids.push_back(raw.id);
    at = raw.end;
  }
  if (framing == Framing::kOfFile) {
    ids.insert(ids.end(), parts_.framing_after.begin(), parts_.framing_after.end());
  }
  return ids;
}

absl::StatusOr<std::string> JsonTokenizer::Decode(absl::Span<const int32_t> ids,
                                                  SpecialTokens special_tokens) const {
  std::string text;
  bool is_first = true;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t id = ids[i];
    if (id < 0 || id >= vocabulary_size() || parts_.tokens[id].empty()) {
      return NoSuchToken(i, id, vocabulary_size());
    }
    if (special_tokens == SpecialTokens::kSkip && parts_.is_special[id]) continue;
    parts_.model->Decode(parts_.tokens[id], is_first, text);
    is_first = false;
  }
  return text;
}

std::optional<int32_t> JsonTokenizer::IdOf(absl::string_view token) const {
  const auto found = parts_.ids.find(token);
  if (found == parts_.ids.end()) return std::nullopt;
  return found->second;
}

std::optional<int32_t> JsonTokenizer::SpecialId(SpecialToken which) const {
  if (which == SpecialToken::kUnknown && !parts_.unknown.empty()) return IdOf(parts_.unknown);
  for (const char* const name : UsualNames(which)) {
    const std::optional<int32_t> id = IdOf(name);
    if (id.has_value()) return id;
  }
  return std::nullopt;
}

}  // namespace penstock
