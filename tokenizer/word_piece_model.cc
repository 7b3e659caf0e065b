#include "tokenizer/word_piece_model.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/utf8.h"
#include "tokenizer/characters.h"
#include "tokenizer/unicode_classes.h"

namespace penstock {
namespace {

using Pieces = std::vector<std::pair<absl::string_view, int32_t>>;

Pieces WithoutPrefix(const Pieces& pieces, absl::string_view prefix) {
  Pieces rest;
  for (const auto& [piece, id] : pieces) {
    if (absl::StartsWith(piece, prefix) && piece.size() > prefix.size()) {
      rest.emplace_back(piece.substr(prefix.size()), id);
    }
  }
  return rest;
}

int64_t CharactersOf(absl::string_view word) {
  int64_t characters = 0;
  for (const char byte : word) characters += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  return characters;
}

}  // namespace

WordPieceModel::WordPieceModel(const Pieces& pieces, Options options)
    : options_(std::move(options)),
      beginnings_(pieces),
      continuations_(WithoutPrefix(pieces, options_.continuing_prefix)) {}

absl::Status WordPieceModel::Encode(absl::string_view text, std::vector<int32_t>& ids) const {
  std::string cleaned;
  if (FindInvalidUtf8(text) != absl::string_view::npos) {
    cleaned = CleanUtf8(text, 3 * text.size() + 3);
    text = cleaned;
  }
  ScratchPool<WordCache>::Lease words(caches_);
  size_t begin = 0;
  const auto end_word = [&](size_t end) {
    if (end > begin) EncodeWord(text.substr(begin, end - begin), *words, ids);
  };
  for (size_t at = 0; at < text.size();) {
    const Character character = ReadCharacter(text.substr(at));
    if (IsWhiteSpace(character.code)) {
      end_word(at);
      begin = at + character.bytes;
    } else if (IsPunctuation(character.code)) {
      end_word(at);
      begin = at;
      end_word(at + character.bytes);
      begin = at + character.bytes;
    }
    at += character.bytes;
  }
  end_word(text.size());
  return absl::OkStatus();
}

void WordPieceModel::EncodeWord(absl::string_view word, WordCache& words,
                                std::vector<int32_t>& ids) const {
  const bool is_cached = word.size() <= WordCache::kWordBytesMax;
  const uint64_t hash = is_cached ? HashOfBytes(word) : 0;
  if (is_cached && words.Find(word, hash, ids)) return;
  const size_t before = ids.size();
  if (CharactersOf(word) > options_.word_characters_max) {
    ids.push_back(options_.unknown);
    return;
  }
  for (absl::string_view rest = word; !rest.empty();) {
    const ByteTrie::Found piece =
        (rest.size() == word.size() ? beginnings_ : continuations_).Longest(rest);
    if (piece.value < 0) {
      ids.resize(before);
      ids.push_back(options_.unknown);
      break;
    }
    ids.push_back(piece.value);
    rest.remove_prefix(piece.bytes);
  }
  if (is_cached) words.Put(word, hash, absl::MakeConstSpan(ids).subspan(before));
}

void WordPieceModel::Decode(absl::string_view token, bool is_first, std::string& text) const {
  std::string part(token);
  if (!is_first) {
    absl::string_view rest = token;
    part = absl::ConsumePrefix(&rest, options_.decoder_prefix) ? std::string(rest)
                                                               : absl::StrCat(" ", token);
  }
  if (options_.decoder_cleanup) {
    // One after the other, as a later one may see what an earlier one left.
    constexpr std::pair<absl::string_view, absl::string_view> kSpaces[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& space : kSpaces) absl::StrReplaceAll({space}, &part);
  }
  text += part;
}

}  // namespace penstock
