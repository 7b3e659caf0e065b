// PieceList: the pieces of a vocabulary as SentencePiece lists them, and text of their numbers.
//
// A line of the list is piece, tab, score; a piece's number is its line, from 0. "\u2581" in a piece is a space. The pieces
// <pad>, <unk>, <s> and </s> are those that stand for no text.
//
// A value; thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace penstock {

inline constexpr int64_t kPieceListBytesMax = int64_t{64} << 20;

// The numbers that data of pairs needs to know.
struct PieceNumbers {
  int64_t pieces = 0;
  int32_t padding = 0;
  int32_t unknown = 0;
  int32_t bos = 0;  // the beginning of a sentence
  int32_t eos = 0;  // its end

  friend bool operator==(const PieceNumbers&, const PieceNumbers&) = default;
};

class PieceList {
 public:
  // Errors: InvalidArgument (one of the four special pieces is missing, as in models that were not trained with
  // --pad_id), Unimplemented (pieces of bytes).
  static absl::StatusOr<PieceList> Parse(absl::string_view list);

  const PieceNumbers& numbers() const { return numbers_; }

  // What spm_decode makes of them. Numbers that stand for no text, or beyond the list, add nothing; an unknown piece is
  // " \u2047 ".
  std::string TextOf(absl::Span<const int32_t> numbers) const;

 private:
  std::vector<std::string> pieces_;  // with spaces, by number
  PieceNumbers numbers_;
};

}  // namespace penstock
