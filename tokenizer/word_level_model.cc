#include "tokenizer/word_level_model.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"

namespace penstock {

absl::Status WordLevelModel::Encode(absl::string_view text, std::vector<int32_t>& ids) const {
  std::string cleaned;
  if (FindInvalidUtf8(text) != absl::string_view::npos) {
    cleaned = CleanUtf8(text, 3 * text.size() + 3);
    text = cleaned;
  }
  ScratchPool<WordCutter::Scratch>::Lease scratch(scratches_);
  std::optional<std::string> missing;
  PENSTOCK_RETURN_IF_ERROR(cutter_.Cut(text, *scratch, [&](absl::string_view word) {
    const auto found = ids_.find(word);
    if (found != ids_.end()) return ids.push_back(found->second);
    if (unknown_.has_value()) return ids.push_back(*unknown_);
    if (!missing.has_value()) missing = std::string(word);
  }));
  if (!missing.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::Utf8SafeCEscape(*missing),
      "\" is none of the tokenizer's tokens, and it has none for unknown words; leave it out"));
}

void WordLevelModel::Decode(absl::string_view token, bool, std::string& text) const {
  absl::StrAppend(&text, token);
}

}  // namespace penstock
