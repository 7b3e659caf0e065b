#include "tokenizer/byte_pair_model.h"

#include <algorithm>
#include <optional>

#include "base/status.h"
#include "base/utf8.h"
#include "tokenizer/byte_letters.h"
#include "tokenizer/characters.h"

namespace penstock {
namespace {

// The bytes that `text` begins with and that are part of no character.
size_t InvalidBytes(absl::string_view text) {
  size_t count = 0;
  while (count < text.size() && !ReadCharacter(text.substr(count)).valid) ++count;
  return count;
}

}  // namespace

absl::Status BytePairModel::Encode(absl::string_view text, std::vector<int32_t>& ids) const {
  typename ScratchPool<Scratch>::Lease lease(scratches_);
  Scratch& scratch = *lease;
  const auto encode_word = [&](absl::string_view word) { EncodeWord(word, scratch, ids); };
  while (!text.empty()) {
    const absl::string_view valid = text.substr(0, FindInvalidUtf8(text));
    PENSTOCK_RETURN_IF_ERROR(cutter_.Cut(valid, scratch.cutter, encode_word));
    text.remove_prefix(valid.size());
    const size_t invalid = InvalidBytes(text);
    if (invalid > 0) encode_word(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
  return absl::OkStatus();
}

void BytePairModel::EncodeWord(absl::string_view word, Scratch& scratch,
                               std::vector<int32_t>& ids) const {
  const bool is_cached = word.size() <= WordCache::kWordBytesMax;
  const uint64_t hash = is_cached ? HashOfBytes(word) : 0;
  if (is_cached && scratch.words.Find(word, hash, ids)) return;
  const size_t before = ids.size();
  const auto whole = whole_words_.find(word);
  if (whole != whole_words_.end()) {
    ids.push_back(whole->second);
  } else {
    pairs_.Encode(word, scratch.pairs, ids);
  }
  if (is_cached) scratch.words.Put(word, hash, absl::MakeConstSpan(ids).subspan(before));
}

void BytePairModel::Decode(absl::string_view token, bool, std::string& text) const {
  const std::optional<std::string> bytes = BytesOfLetters(token);
  // Added tokens are written as they are.
  text += bytes.has_value() ? *bytes : std::string(token);
}

}  // namespace penstock
