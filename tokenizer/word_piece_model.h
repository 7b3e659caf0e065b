// WordPieceModel: words to the longest pieces that they begin with, one after the other, as the WordModel of a tokenizer.json.
// Words are what white space and punctuation leave. Schuster and Nakajima, ICASSP 2012.
//
// Thread safety: as WordModel.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tokenizer/byte_trie.h"
#include "tokenizer/json_tokenizer.h"
#include "tokenizer/word_cache.h"

namespace penstock {

class WordPieceModel final : public WordModel {
 public:
  struct Options {
    int32_t unknown = 0;                // the id of words that are not made of pieces
    std::string continuing_prefix;      // of pieces that do not begin a word, "##"
    int64_t word_characters_max = 100;  // longer words are unknown
    std::string decoder_prefix;
    bool decoder_cleanup = true;  // no space before punctuation
  };

  // `pieces` and their ids.
  WordPieceModel(const std::vector<std::pair<absl::string_view, int32_t>>& pieces, Options options);

  absl::Status Encode(absl::string_view text, std::vector<int32_t>& ids) const override;
  void Decode(absl::string_view token, bool is_first, std::string& text) const override;

 private:
  void EncodeWord(absl::string_view word, WordCache& words, std::vector<int32_t>& ids) const;

  const Options options_;
  const ByteTrie beginnings_;
  const ByteTrie continuations_;  // without the prefix
  mutable ScratchPool<WordCache> caches_;
};

}  // namespace penstock
