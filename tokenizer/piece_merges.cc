#include "tokenizer/piece_merges.h"

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tokenizer/characters.h"
#include "tokenizer/limits.h"

namespace penstock {
namespace {

// The ids of the pieces that begin (or, of the reversed, end) `text`, by their bytes; 0 has none.
void FindPieces(const ByteTrie& pieces, absl::string_view text, std::vector<int32_t>& ids) {
  ids.assign(text.size() + 1, -1);
  ByteTrie::Node node = ByteTrie::kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    node = pieces.Step(node, static_cast<uint8_t>(text[i]));
    if (node == ByteTrie::kNone) return;
    ids[i + 1] = pieces.ValueOf(node);
  }
}

// The place of each piece's score among all, the largest first; the same for equal ones.
std::vector<uint32_t> RanksOf(absl::Span<const PieceMerges::Piece> pieces) {
  std::vector<float> scores;
  scores.reserve(pieces.size());
  for (const PieceMerges::Piece& piece : pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks;
  ranks.reserve(pieces.size());
  for (const PieceMerges::Piece& piece : pieces) {
    ranks.push_back(static_cast<uint32_t>(
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) -
        scores.begin()));
  }
  return ranks;
}

void AddUnknown(int32_t bytes, std::vector<int32_t>& parts) {
  if (!parts.empty() && parts.back() < 0) {
    parts.back() -= bytes;
  } else {
    parts.push_back(-bytes);
  }
}

}  // namespace

absl::StatusOr<PieceMerges> PieceMerges::Make(
    absl::Span<const Piece> pieces,
    const std::vector<std::pair<absl::string_view, int32_t>>& user_defined) {
  std::vector<std::string> reversed;
  std::vector<std::pair<absl::string_view, int32_t>> forward, backward;
  int32_t pieces_end = 0;
  for (const Piece& piece : pieces) {
    reversed.emplace_back(piece.text.rbegin(), piece.text.rend());
    forward.emplace_back(piece.text, piece.id);
    pieces_end = std::max(pieces_end, piece.id + 1);
  }
  for (size_t i = 0; i < pieces.size(); ++i) backward.emplace_back(reversed[i], pieces[i].id);
  const ByteTrie beginnings(forward), endings(backward);

  CharacterMap symbols;
  std::vector<int32_t> character_bytes;
  const auto symbol_of = [&](absl::string_view character) {
    const Character read = ReadCharacter(character);
    int32_t symbol = symbols.Of(read.code);
    if (symbol == CharacterMap::kNone) {
      const ByteTrie::Found whole = beginnings.Longest(character);
      symbol = whole.bytes == character.size()
                   ? whole.value
                   : pieces_end + static_cast<int32_t>(character_bytes.size());
      if (symbol >= pieces_end) character_bytes.push_back(static_cast<int32_t>(read.bytes));
      symbols.Set(read.code, symbol);
    }
    return symbol;
  };

  const std::vector<uint32_t> ranks = RanksOf(pieces);
  std::vector<PairMerges::Merge> merges, beside;
  std::vector<int32_t> begin_ids, end_ids;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const absl::string_view text = pieces[i].text;
    FindPieces(beginnings, text, begin_ids);
    FindPieces(endings, reversed[i], end_ids);
    const size_t first = CharacterBytes(text.front());
    size_t last = 1;
    while (last < text.size() && (text[text.size() - last] & 0xC0) == 0x80) ++last;
    int32_t before = CharacterMap::kNone;
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = CharacterBytes(text[at]);
      const int32_t symbol = symbol_of(text.substr(at, bytes));
      if (at > 0) beside.push_back({before, symbol, PairMerges::kNoRank, kBeside});
      before = symbol;
      // Cut before this character.
      const int32_t left = at == first ? symbols.Of(ReadCharacter(text).code) : begin_ids[at];
      const size_t behind = text.size() - at;
      const int32_t right = behind == last ? symbol : end_ids[behind];
      at += bytes;
      if (behind == text.size() || left < 0 || right < 0) continue;
      merges.push_back({left, right, ranks[i], pieces[i].id});
    }
    if (merges.size() + beside.size() > kPiecePairsMax) {
      return absl::OutOfRangeError(
          absl::StrCat("has pieces that can be cut in two in more than ", kPiecePairsMax, " ways"));
    }
  }
  const auto less = [](const PairMerges::Merge& a, const PairMerges::Merge& b) {
    return std::tie(a.left, a.right) < std::tie(b.left, b.right);
  };
  const auto equal = [](const PairMerges::Merge& a, const PairMerges::Merge& b) {
    return a.left == b.left && a.right == b.right;
  };
  std::sort(beside.begin(), beside.end(), less);
  beside.erase(std::unique(beside.begin(), beside.end(), equal), beside.end());
  // Those that are pieces come last, and count.
  beside.insert(beside.end(), merges.begin(), merges.end());
  return PieceMerges(std::move(symbols), std::move(character_bytes), pieces_end, beside,
                     user_defined);
}

PieceMerges::PieceMerges(CharacterMap symbols, std::vector<int32_t> character_bytes,
                         int32_t pieces_end, const std::vector<PairMerges::Merge>& merges,
                         const std::vector<std::pair<absl::string_view, int32_t>>& user_defined)
    : symbols_(std::move(symbols)),
      character_bytes_(std::move(character_bytes)),
      pieces_end_(pieces_end),
      merges_(merges),
      user_defined_(user_defined) {}

void PieceMerges::Encode(absl::string_view word, Scratch& scratch,
                         std::vector<int32_t>& parts) const {
  std::vector<int32_t>& row = scratch.symbols;
  std::vector<PairMerges::Result>& results = scratch.results;
  row.clear();
  results.clear();
  const auto add = [&](int32_t symbol) {
    if (symbol < pieces_end_) {
      parts.push_back(symbol);
    } else {
      AddUnknown(character_bytes_[symbol - pieces_end_], parts);
    }
  };
  const auto merge_row = [&] {
    if (row.size() == 1) {
      add(row.front());
    } else if (!row.empty()) {
      scratch.merged.clear();
      merges_.Apply(row, results, scratch.merges, scratch.merged);
      for (const int32_t symbol : scratch.merged) add(symbol);
    }
    row.clear();
    results.clear();
  };
  for (size_t at = 0; at < word.size();) {
    const ByteTrie::Found found = user_defined_.Longest(word.substr(at));
    if (found.bytes > 0) {
      merge_row();
      parts.push_back(found.value);
      at += found.bytes;
      continue;
    }
    const Character character = ReadCharacter(word.substr(at));
    at += character.bytes;
    const int32_t symbol = symbols_.Of(character.code);
    if (symbol == CharacterMap::kNone) {
      merge_row();
      AddUnknown(static_cast<int32_t>(character.bytes), parts);
      continue;
    }
    if (!row.empty()) {
      const PairMerges::Result result = merges_.Find(row.back(), symbol);
      if (result.rank == PairMerges::kNoRank && result.merged != kBeside) {
        merge_row();
      } else {
        results.push_back(result);
      }
    }
    row.push_back(symbol);
  }
  merge_row();
}

}  // namespace penstock
