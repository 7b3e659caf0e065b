// SentencePieceTokenizer: a `.model` of SentencePiece, whose ids are those of its own library: unigram (the pieces with the
// largest sum of scores) and BPE. Kudo and Richardson, EMNLP 2018, arXiv 1808.06226.
//
// Thread safety: as Tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tokenizer/piece_merges.h"
#include "tokenizer/sentence_piece_file.h"
#include "tokenizer/sentence_piece_normalizer.h"
#include "tokenizer/short_words.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram_pieces.h"
#include "tokenizer/word_cache.h"

namespace penstock {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Errors: InvalidArgument (the table of characters), OutOfRange (limits.h).
  static absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> Make(SentencePieceFile file);

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              Framing framing) const override;
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids,
                                     SpecialTokens special_tokens) const override;
  // Where a text begins with a space that is put before it, line ends are spaces, and spaces are one, a line end is the
  // same as a beginning.
  bool can_be_cut() const override {
    return file_->add_dummy_prefix && file_->remove_extra_whitespaces &&
           normalizer_.lines_end_with_spaces() && pieces_end_at_spaces_ && !has_user_defined_;
  }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(file_->pieces.size()); }
  std::optional<int32_t> IdOf(absl::string_view token) const override;
  std::optional<int32_t> SpecialId(SpecialToken which) const override;

  // The text as pieces are looked for in it: replaced by the table, with "\u2581" for spaces.
  std::string Normalized(absl::string_view text) const { return normalizer_.Normalized(text); }

 private:
  // Ids, with room behind them that is not cleared each time.
  class Ids {
   public:
    void Clear() {
      count_ = 0;
      if (room_.size() > kKeptMax) room_ = {};
    }
    // Where `count` ids can be put; End says how many were.
    int32_t* Room(size_t count) {
      if (room_.size() - count_ < count) room_.resize(2 * room_.size() + count);
      return room_.data() + count_;
    }
    void End(size_t count) { count_ += count; }
    std::vector<int32_t> Copy() const { return {room_.data(), room_.data() + count_}; }

   private:
    static constexpr size_t kKeptMax = 1 << 20;
    std::vector<int32_t> room_;
    size_t count_ = 0;
  };
  struct Scratch {
    // Of the text so far.
    Ids ids;
    float score = 0;  // of unigram pieces
    bool is_behind_unknown = false;

    SentencePieceNormalizer::Result normalized;
    std::vector<int32_t>
        parts;  // of a word: ids, and for what no piece has, the number of its bytes below zero
    UnigramPieces::Scratch unigram;
    PieceMerges::Scratch merges;
    ShortWords short_words;  // as they are in the text
    WordCache words;         // as they are when they are normalized
  };
  using Pieces = std::vector<std::pair<absl::string_view, int32_t>>;

  // REQUIRES: exactly one of `unigram` and `merges` is there.
  SentencePieceTokenizer(std::unique_ptr<const SentencePieceFile> file,
                         SentencePieceNormalizer normalizer, std::optional<UnigramPieces> unigram,
                         std::optional<PieceMerges> merges, bool has_user_defined);

  // Where no piece goes over the beginning of a word, words are looked at one by one: those in the text that were seen before
  // are not even normalized.
  void EncodeByWords(absl::string_view text, Scratch& scratch) const;
  void EncodeNormalized(absl::string_view text, Scratch& scratch) const;
  // Puts the pieces of a word in `parts`. Returns the largest score before it, without its sign, at which they are the same;
  // below zero if there is no such.
  float EncodeWord(absl::string_view word, Scratch& scratch) const;
  // Adds the ids of the parts of `word`.
  void AddIds(absl::string_view word, Scratch& scratch) const;

  const std::unique_ptr<const SentencePieceFile> file_;  // stays where it is, for views of it
  const SentencePieceNormalizer normalizer_;
  const std::optional<UnigramPieces> unigram_;
  const std::optional<PieceMerges> merges_;
  const bool has_user_defined_;
  bool pieces_end_at_spaces_ = true;  // none has a space behind another character
  absl::flat_hash_map<absl::string_view, int32_t> ids_;  // of all pieces
  std::vector<int32_t> piece_bytes_;
  std::array<int32_t, 256> byte_ids_;
  int32_t unknown_ = 0;
  mutable ScratchPool<Scratch> scratches_;
};

}  // namespace penstock
