// SentencePieceNormalizer: a text as pieces are looked for in it: replaced by the model's table, with "\u2581" for spaces.
//
// Immutable once it is made; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/sentence_piece_file.h"

namespace penstock {

inline constexpr absl::string_view kPieceSpace = "\u2581";

class SentencePieceNormalizer {
 public:
  struct Result {
    std::string text;
    bool is_behind_space = false;  // further spaces add nothing
  };

  // `user_defined`: pieces that are kept as they are.
  SentencePieceNormalizer(const SentencePieceFile& file, CharacterTable table,
                          const std::vector<std::pair<absl::string_view, int32_t>>& user_defined);

  // Of a whole text.
  std::string Normalized(absl::string_view text) const;

  // Whether the result of a text is that of its parts that each begin with a space, added one after the other.
  bool parts_are_apart() const { return parts_are_apart_; }
  // Whether line ends become spaces.
  bool lines_end_with_spaces() const { return lines_end_with_spaces_; }

  // Begins a result with `spaces`.
  void Begin(size_t spaces, Result& result) const;
  void Add(absl::string_view text, Result& result) const;
  // Takes off what no text ends with.
  void End(Result& result) const;

 private:
  CharacterTable::Replacement Prefix(absl::string_view text) const;
  // How many bytes `text` begins with that are kept, without spaces.
  size_t Kept(absl::string_view text) const;

  CharacterTable table_;
  ByteTrie user_defined_;
  bool add_dummy_prefix_, remove_extra_whitespaces_;
  absl::string_view space_;
  bool parts_are_apart_ = false;
  bool lines_end_with_spaces_ = false;
};

}  // namespace penstock
