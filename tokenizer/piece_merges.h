// PieceMerges: a word to pieces of a SentencePiece BPE model: of all pairs of neighbours that make a piece, the one with the
// largest score is merged first, and of equal ones the leftmost.
//
// A pair is looked up by the numbers of its symbols (a piece, or a character that is none but part of one) in a table of all ways
// to cut a piece in two. Nothing is merged over a character of no piece, nor over two that are beside each other in no piece, so
// what lies between is merged by itself: of a text that the model does not know, these are characters.
//
// Immutable once it is made; a Scratch for each thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/character_map.h"
#include "tokenizer/pair_merges.h"

namespace penstock {

class PieceMerges {
 public:
  struct Piece {
    absl::string_view text;
    int32_t id = 0;
    float score = 0;
  };
  struct Scratch {
    std::vector<int32_t> symbols;
    std::vector<PairMerges::Result> results;
    PairMerges::Scratch merges;
    std::vector<int32_t> merged;
  };

  // `user_defined`: pieces that are cut before all others and never merged; they are among `pieces`.
  // Errors: OutOfRange (more ways to cut pieces than limits.h allows).
  static absl::StatusOr<PieceMerges> Make(
      absl::Span<const Piece> pieces,
      const std::vector<std::pair<absl::string_view, int32_t>>& user_defined);

  // Appends the ids of the pieces of `word`, which is UTF-8, and for characters in a row that are none the number of their bytes
  // below zero.
  void Encode(absl::string_view word, Scratch& scratch, std::vector<int32_t>& parts) const;

 private:
  PieceMerges(CharacterMap symbols, std::vector<int32_t> character_bytes, int32_t pieces_end,
              const std::vector<PairMerges::Merge>& merges,
              const std::vector<std::pair<absl::string_view, int32_t>>& user_defined);

  static constexpr int32_t kBeside = 1;  // merged to that: a pair is no piece, but within one

  CharacterMap symbols_;  // of characters: the id of a piece, or from pieces_end_ on
  std::vector<int32_t> character_bytes_;  // of the characters from pieces_end_ on
  int32_t pieces_end_ = 0;
  PairMerges merges_;
  ByteTrie user_defined_;
};

}  // namespace penstock
