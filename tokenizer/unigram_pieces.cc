#include "tokenizer/unigram_pieces.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/characters.h"

namespace penstock {
namespace {

constexpr float kUnknownPenalty = 10.0f;  // below the worst score
constexpr size_t kWaysKept = 1 << 16;

std::vector<std::pair<absl::string_view, int32_t>> TextsOf(
    absl::Span<const UnigramPieces::Piece> pieces) {
  std::vector<std::pair<absl::string_view, int32_t>> texts;
  texts.reserve(pieces.size());
  for (const UnigramPieces::Piece& piece : pieces) texts.emplace_back(piece.text, piece.id);
  return texts;
}

}  // namespace

UnigramPieces::UnigramPieces(absl::Span<const Piece> pieces) : pieces_(TextsOf(pieces)) {
  float score_min = std::numeric_limits<float>::max();
  score_max_ = std::numeric_limits<float>::lowest();
  size_t ids_end = 0;
  bool has_user_defined = false;
  for (const Piece& piece : pieces) {
    ids_end = std::max(ids_end, static_cast<size_t>(piece.id) + 1);
    has_user_defined |= piece.is_user_defined;
    if (piece.is_user_defined) continue;
    score_min = std::min(score_min, piece.score);
    score_max_ = std::max(score_max_, piece.score);
  }
  unknown_score_ = score_min - kUnknownPenalty;
  scores_.resize(ids_end);
  if (has_user_defined) is_user_defined_.resize(ids_end);
  for (const Piece& piece : pieces) {
    scores_[piece.id] = piece.score;
    if (piece.is_user_defined) is_user_defined_[piece.id] = true;
    ByteTrie::Node node = ByteTrie::kRoot;
    for (const char byte : piece.text.substr(0, CharacterBytes(piece.text.front()))) {
      node = pieces_.Step(node, static_cast<uint8_t>(byte));
    }
    first_.Set(ReadCharacter(piece.text).code, static_cast<int32_t>(node));
  }
}

// The best way to every place, from left to right.
template <bool kMargin>
float UnigramPieces::Search(absl::string_view word, float before, Scratch& scratch,
                            std::vector<int32_t>& parts, double& margin) const {
  if (scratch.ways_.size() <= word.size()) scratch.ways_.resize(word.size() + 1);
  Scratch::Way* const ways = scratch.ways_.data();
  size_t reached = 0;  // ways behind it are of another word
  ways[0].score = before;
  Scratch::ExactSums* sums = nullptr;
  if (kMargin) {
    scratch.sums_.assign(word.size() + 1, {});
    sums = scratch.sums_.data();
    sums[0].best = 0;
  }
  const auto offer = [&](size_t begin, size_t end, float score, double added, int32_t id) {
    const Scratch::Way way = {.score = score, .id = id, .bytes = static_cast<int32_t>(end - begin)};
    if (end > reached) {
      while (++reached < end) ways[reached].bytes = 0;
      ways[end] = way;
    } else if (ways[end].bytes == 0 || score > ways[end].score) {
      ways[end] = way;
    }
    if (!kMargin) return;
    const Scratch::ExactSums from = sums[begin];
    Scratch::ExactSums& sum = sums[end];
    const double best = from.best + added;
    sum.second = std::max({sum.second, std::min(sum.best, best), from.second + added});
    sum.best = std::max(sum.best, best);
  };
  for (size_t begin = 0; begin < word.size();) {
    const float score = ways[begin].score;
    const Character character = ReadCharacter(word.substr(begin));
    const size_t next = begin + character.bytes;
    const int32_t first = first_.Of(character.code);
    bool has_character = false;
    if (first >= 0) {
      auto node = static_cast<ByteTrie::Node>(first);
      for (size_t end = next;;) {
        const int32_t id = pieces_.ValueOf(node);
        if (id >= 0) {
          const double added = !is_user_defined_.empty() && is_user_defined_[id]
                                   ? static_cast<float>(end - begin) * score_max_ - 0.1
                                   : static_cast<double>(scores_.data()[id]);
          offer(begin, end, static_cast<float>(added + score), added, id);
          has_character |= end == next;
        }
        if (end == word.size()) break;
        node = pieces_.Step(node, static_cast<uint8_t>(word[end]));
        if (node == ByteTrie::kNone) break;
        ++end;
      }
    }
    if (!has_character) offer(begin, next, unknown_score_ + score, unknown_score_, -1);
    begin = next;
  }
  const size_t old = parts.size();
  for (size_t end = word.size(); end > 0; end -= ways[end].bytes) {
    parts.push_back(ways[end].id >= 0 ? ways[end].id : -ways[end].bytes);
  }
  std::reverse(parts.begin() + static_cast<int64_t>(old), parts.end());
  if (kMargin) margin = sums[word.size()].best - sums[word.size()].second;
  return ways[word.size()].score;
}

float UnigramPieces::Encode(absl::string_view word, float before, Scratch& scratch,
                            std::vector<int32_t>& parts) const {
  double margin = 0;
  const float score = Search<false>(word, before, scratch, parts, margin);
  if (scratch.ways_.capacity() > kWaysKept) scratch.ways_ = {};
  return score;
}

// A sum of floats is wrong by at most 2^-24 of the largest score on its way for each of its pieces, of which a word has no more
// than bytes. Two sums that differ by more than twice that, and once more as much, are in order.
float UnigramPieces::EncodeWithLimit(absl::string_view word, float before, Scratch& scratch,
                                     std::vector<int32_t>& parts, float& limit) const {
  double margin = 0;
  const float score = Search<true>(word, before, scratch, parts, margin);
  const auto bytes = static_cast<double>(word.size());
  const double most = std::max(std::fabs(unknown_score_), std::fabs(score_max_));
  limit = static_cast<float>(std::min<double>(margin / bytes * (1 << 22) - bytes * most,
                                              std::numeric_limits<float>::max()));
  return score;
}

}  // namespace penstock
