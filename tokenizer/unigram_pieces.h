// UnigramPieces: a word to the pieces with the largest sum of scores (Viterbi). Kudo, ACL 2018, arXiv 1804.10959.
//
// Immutable once it is made; a Scratch for each thread.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/character_map.h"

namespace penstock {

class UnigramPieces {
 public:
  struct Piece {
    absl::string_view text;
    int32_t id = 0;
    float score = 0;
    bool is_user_defined = false;
  };
  class Scratch {
   private:
    friend class UnigramPieces;
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
    std::vector<Way> ways_;
    std::vector<ExactSums> sums_;
  };

  explicit UnigramPieces(absl::Span<const Piece> pieces);

  // Appends the ids of the pieces of `word`, which is UTF-8, and for a character that no piece has the number of its bytes below
  // zero. Goes on from a way to the word's beginning, with the score `before`, and returns that to its end. Sums are floats
  // that begin with the text, as in the library (0.2.3), for their rounding decides between ways that are equally good,
  // such as "aa a" and "a aa".
  float Encode(absl::string_view word, float before, Scratch& scratch,
               std::vector<int32_t>& parts) const;

  // The same, and sets `limit` to the largest score before the word, without its sign, at which rounding cannot make another
  // way the best. It is below zero if there is no such.
  float EncodeWithLimit(absl::string_view word, float before, Scratch& scratch,
                        std::vector<int32_t>& parts, float& limit) const;

  // The score behind such parts, as Encode returned it. REQUIRES: there are no user-defined pieces.
  float ScoreBehind(absl::Span<const int32_t> parts, float score) const {
    for (const int32_t part : parts) {
      score = part >= 0 ? scores_.data()[part] + score : unknown_score_ + score;
    }
    return score;
  }

 private:
  template <bool kMargin>
  float Search(absl::string_view word, float before, Scratch& scratch, std::vector<int32_t>& parts,
               double& margin) const;

  ByteTrie pieces_;
  CharacterMap first_;                 // the trie's nodes behind the first character of a piece
  std::vector<float> scores_;          // by id
  std::vector<bool> is_user_defined_;  // by id; empty if there are none
  float score_max_ = 0;
  float unknown_score_ = 0;
};

}  // namespace penstock
