#include "data/piece_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace penstock {
namespace {

constexpr char kUnknownText[] = " \u2047 ";

}  // namespace

absl::StatusOr<PieceList> PieceList::Parse(absl::string_view list) {
  PieceList parsed;
  struct Special {
    absl::string_view piece;
    int32_t* number;
    bool found = false;
  };
  Special specials[] = {{"<pad>", &parsed.numbers_.padding},
                        {"<unk>", &parsed.numbers_.unknown},
                        {"<s>", &parsed.numbers_.bos},
                        {"</s>", &parsed.numbers_.eos}};
  absl::ConsumeSuffix(&list, "\n");
  for (const absl::string_view line : absl::StrSplit(list, '\n')) {
    const absl::string_view piece = line.substr(0, line.find('\t'));
    if (piece == "<0x00>") {
      return absl::UnimplementedError(
          "has pieces that are single bytes (byte_fallback), which are not known here; train one "
          "without them");
    }
    std::string text = absl::StrReplaceAll(piece, {{"\u2581", " "}});
    for (Special& special : specials) {
      if (piece != special.piece) continue;
      *special.number = static_cast<int32_t>(parsed.pieces_.size());
      special.found = true;
      text = special.piece == "<unk>" ? kUnknownText : "";
    }
    parsed.pieces_.push_back(std::move(text));
  }
  for (const Special& special : specials) {
    if (special.found) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("has no piece ", special.piece,
                     "; spm_train makes it with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3"));
  }
  parsed.numbers_.pieces = static_cast<int64_t>(parsed.pieces_.size());
  return parsed;
}

std::string PieceList::TextOf(absl::Span<const int32_t> numbers) const {
  std::string text;
  for (const int32_t number : numbers) {
    if (number >= 0 && number < numbers_.pieces) text += pieces_[number];
  }
  // Every sentence is cut with a space before its first word.
  return std::string(absl::StripPrefix(text, " "));
}

}  // namespace penstock
