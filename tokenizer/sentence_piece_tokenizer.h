// SentencePieceTokenizer: a `.model` of SentencePiece, whose ids are those of its own library: unigram (the pieces with the
// largest sum of scores) and BPE. Kudo and Richardson, EMNLP 2018, arXiv 1808.06226.
//
// Thread safety: as Tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/sentence_piece_file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/word_cache.h"

namespace penstock {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Errors: InvalidArgument (the table of characters).
  static absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> Make(SentencePieceFile file);

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              Framing framing) const override;
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids,
                                     SpecialTokens special_tokens) const override;
  // Where a text begins with a space that is put before it, line ends are spaces, and spaces are one, a line end is the
  // same as a beginning.
  bool can_be_cut() const override {
    return file_.add_dummy_prefix && file_.remove_extra_whitespaces && lines_end_with_spaces_ &&
           pieces_end_at_spaces_ && !has_user_defined_;
  }
  int64_t vocabulary_size() const override { return static_cast<int64_t>(file_.pieces.size()); }
  std::optional<int32_t> IdOf(absl::string_view token) const override;
  std::optional<int32_t> SpecialId(SpecialToken which) const override;

  // The text as pieces are looked for in it: replaced by the table, with "\u2581" for spaces.
  std::string Normalized(absl::string_view text) const;

 private:
  static constexpr double kNoWay = -std::numeric_limits<double>::infinity();

  // The best way to a place of a word. It is small, for a word may be a whole text.
  struct Way {
    float score = 0;
    int32_t id = 0;
    int32_t bytes = 0;  // of its last piece; 0: there is no way yet
  };
  // Exact sums from the word's beginning, of the best way and of the second best.
  struct ExactSums {
    double best = kNoWay, second = kNoWay;
  };
  struct Symbol {
    int64_t begin = 0;
    int64_t bytes = 0;  // 0: it is gone
    int64_t previous = 0, next = 0;
    bool is_frozen = false;  // user-defined
  };
  struct Candidate {
    float score = 0;
    int64_t left = 0, right = 0;
    int64_t bytes = 0;
    friend bool operator<(const Candidate& a,
                          const Candidate& b) {  // for a heap with the best on top
      return a.score != b.score ? a.score < b.score : a.left > b.left;
    }
  };
  struct Scratch {
    std::vector<Way> ways;
    std::vector<ExactSums> sums;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    // The pieces of the normalized text: ids, and for what no piece has, the number of its bytes below zero.
    std::vector<int32_t> parts;
    WordCache words;
  };

  explicit SentencePieceTokenizer(SentencePieceFile file, CharacterTable table);

  CharacterTable::Replacement NormalizedPrefix(absl::string_view text) const;
  void EncodeUnigram(absl::string_view text, Scratch& scratch) const;
  // Goes on from a way to the word's beginning, with the score `before`, and returns that to its end. With `kMargin` it
  // also sets `margin` to what the second best way is behind.
  template <bool kMargin>
  float EncodeUnigramWord(absl::string_view word, float before, Scratch& scratch,
                          double& margin) const;
  // Returns the largest score before a word, without its sign, at which rounding cannot make another way than that with
  // `margin` the best.
  float LimitOf(absl::string_view word, double margin) const;
  float ScoreBehind(absl::Span<const int32_t> parts, float score) const;
  void EncodeBpe(absl::string_view text, Scratch& scratch) const;
  void EncodeBpeWord(absl::string_view text, Scratch& scratch) const;
  int32_t PieceId(absl::string_view text) const;  // -1: none

  const SentencePieceFile file_;
  const CharacterTable table_;
  ByteTrie pieces_;        // that text is cut into
  ByteTrie user_defined_;  // that are cut before all others
  bool has_user_defined_ = false;
  bool pieces_end_at_spaces_ = true;    // none has a space behind another character
  bool lines_end_with_spaces_ = false;  // the table makes spaces of line ends
  absl::flat_hash_map<absl::string_view, int32_t> ids_;       // of all pieces
  absl::flat_hash_map<absl::string_view, int32_t> text_ids_;  // of those that text is cut into
  std::vector<float> scores_;                                 // by piece
  std::array<int32_t, 256> byte_ids_;
  int32_t unknown_ = 0;
  float score_min_ = 0, score_max_ = 0;
  float unknown_score_ = 0;
  mutable ScratchPool<Scratch> scratches_;
};

}  // namespace penstock
