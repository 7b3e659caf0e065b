#include "tokenizer/sentence_piece_normalizer.h"

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "tokenizer/characters.h"

namespace penstock {
namespace {

constexpr absl::string_view kUnreadable = "\uFFFD";

}  // namespace

SentencePieceNormalizer::SentencePieceNormalizer(
    const SentencePieceFile& file, CharacterTable table,
    const std::vector<std::pair<absl::string_view, int32_t>>& user_defined)
    : table_(std::move(table)),
      user_defined_(user_defined),
      add_dummy_prefix_(file.add_dummy_prefix),
      remove_extra_whitespaces_(file.remove_extra_whitespaces),
      space_(file.escape_whitespaces ? kPieceSpace : " ") {
  const CharacterTable::Replacement space = table_.Find(" ");
  parts_are_apart_ = file.escape_whitespaces && (space.bytes == 0 || space.text == " ") &&
                     !table_.replaces_beyond_spaces() &&
                     !absl::StrContains(table_.texts(), kPieceSpace);
  for (const auto& piece : user_defined) {
    // One of spaces alone changes nothing where all are kept.
    const bool has_space = absl::StrContains(piece.first, ' ');
    const bool has_other = piece.first.find_first_not_of(' ') != absl::string_view::npos;
    if (has_space && (has_other || remove_extra_whitespaces_)) parts_are_apart_ = false;
  }
  lines_end_with_spaces_ = table_.Find("\n").text == " " && table_.Find("\r").text == " ";
}

CharacterTable::Replacement SentencePieceNormalizer::Prefix(absl::string_view text) const {
  const size_t bytes = user_defined_.Longest(text).bytes;
  if (bytes > 0) return {bytes, text.substr(0, bytes)};
  const CharacterTable::Replacement replacement = table_.Find(text);
  if (replacement.bytes > 0) return replacement;
  const Character character = ReadCharacter(text);
  return {character.bytes, character.valid ? text.substr(0, character.bytes) : kUnreadable};
}

size_t SentencePieceNormalizer::Kept(absl::string_view text) const {
  size_t at = 0;
  while (at < text.size() &&
         user_defined_.Step(ByteTrie::kRoot, static_cast<uint8_t>(text[at])) == ByteTrie::kNone) {
    const size_t bytes = table_.KeptCharacter(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

void SentencePieceNormalizer::Begin(size_t spaces, Result& result) const {
  result.text.clear();
  for (size_t i = 0; i < spaces; ++i) result.text.append(space_.data(), space_.size());
  result.is_behind_space = remove_extra_whitespaces_;
}

void SentencePieceNormalizer::Add(absl::string_view text, Result& result) const {
  while (!text.empty()) {
    if (const size_t kept = Kept(text); kept > 0) {
      result.text.append(text.data(), kept);
      text.remove_prefix(kept);
      result.is_behind_space = false;
      continue;
    }
    CharacterTable::Replacement prefix = Prefix(text);
    text.remove_prefix(prefix.bytes);
    while (result.is_behind_space && absl::ConsumePrefix(&prefix.text, " ")) {
    }
    if (!prefix.text.empty()) {
      for (const char letter : prefix.text) {
        if (letter == ' ') {
          result.text.append(space_.data(), space_.size());
        } else {
          result.text += letter;
        }
      }
      result.is_behind_space = remove_extra_whitespaces_ && prefix.text.back() == ' ';
    }
  }
}

void SentencePieceNormalizer::End(Result& result) const {
  if (!remove_extra_whitespaces_) return;
  while (absl::EndsWith(result.text, space_)) {
    result.text.resize(result.text.size() - space_.size());
  }
}

std::string SentencePieceNormalizer::Normalized(absl::string_view text) const {
  Result result;
  if (remove_extra_whitespaces_) {
    while (!text.empty()) {
      const CharacterTable::Replacement first = Prefix(text);
      if (first.text != " ") break;
      text.remove_prefix(first.bytes);
    }
  }
  if (text.empty()) return {};
  result.text.reserve(text.size() + text.size() / 2);
  Begin(add_dummy_prefix_ ? 1 : 0, result);
  Add(text, result);
  End(result);
  return std::move(result.text);
}

}  // namespace penstock
