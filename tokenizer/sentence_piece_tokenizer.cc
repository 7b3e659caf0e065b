#include "tokenizer/sentence_piece_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenizer/characters.h"
#include "tokenizer/json_tokenizer.h"

namespace penstock {
namespace {

using Kind = SentencePieceFile::Kind;

constexpr absl::string_view kSpace = "\u2581";
constexpr absl::string_view kReplacement = "\uFFFD";

bool HasSpaceBehindCharacter(absl::string_view piece) {
  for (size_t at = piece.find(kSpace); at != absl::string_view::npos;
       at = piece.find(kSpace, at + kSpace.size())) {
    if (at > 0 && !absl::EndsWith(piece.substr(0, at), kSpace)) return true;
  }
  return false;
}

// Takes the spaces that `text` begins with and what follows up to the next.
absl::string_view TakeWord(absl::string_view& text) {
  size_t end = 0;
  while (absl::StartsWith(text.substr(end), kSpace)) end += kSpace.size();
  end = std::min(text.find(kSpace, end), text.size());
  const absl::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

constexpr float kUnknownPenalty = 10.0f;  // below the worst score

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePieceModel(absl::string_view model) {
  PENSTOCK_ASSIGN_OR_RETURN(SentencePieceFile file, ReadSentencePieceFile(model));
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                            SentencePieceTokenizer::Make(std::move(file)));
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> SentencePieceTokenizer::Make(
    SentencePieceFile file) {
  PENSTOCK_ASSIGN_OR_RETURN(CharacterTable table, CharacterTable::Make(file.character_table));
  return std::unique_ptr<SentencePieceTokenizer>(
      new SentencePieceTokenizer(std::move(file), std::move(table)));
}

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceFile file, CharacterTable table)
    : file_(std::move(file)), table_(std::move(table)) {
  std::vector<std::pair<absl::string_view, int32_t>> pieces, user_defined;
  score_min_ = std::numeric_limits<float>::max();
  score_max_ = std::numeric_limits<float>::lowest();
  byte_ids_.fill(-1);
  for (size_t i = 0; i < file_.pieces.size(); ++i) {
    const SentencePieceFile::Piece& piece = file_.pieces[i];
    const auto id = static_cast<int32_t>(i);
    ids_[piece.text] = id;
    scores_.push_back(piece.score);
    if (piece.kind == Kind::kUnknown) unknown_ = id;
    if (piece.kind == Kind::kByte) {
      for (int byte = 0; byte < 256; ++byte) {
        if (piece.text == absl::StrFormat("<0x%02X>", byte)) byte_ids_[byte] = id;
      }
    }
    if (piece.kind == Kind::kNormal) {
      score_min_ = std::min(score_min_, piece.score);
      score_max_ = std::max(score_max_, piece.score);
    }
    if (piece.kind != Kind::kNormal && piece.kind != Kind::kUserDefined) continue;
    pieces.emplace_back(piece.text, id);
    text_ids_[piece.text] = id;
    if (HasSpaceBehindCharacter(piece.text)) pieces_end_at_spaces_ = false;
    if (piece.kind == Kind::kUserDefined) user_defined.emplace_back(piece.text, id);
  }
  unknown_score_ = score_min_ - kUnknownPenalty;
  pieces_ = ByteTrie(pieces);
  has_user_defined_ = !user_defined.empty();
  user_defined_ = ByteTrie(user_defined);
  lines_end_with_spaces_ = table_.Find("\n").text == " " && table_.Find("\r").text == " ";
}

CharacterTable::Replacement SentencePieceTokenizer::NormalizedPrefix(absl::string_view text) const {
  if (has_user_defined_) {
    const size_t bytes = user_defined_.Longest(text).bytes;
    if (bytes > 0) return {bytes, text.substr(0, bytes)};
  }
  const CharacterTable::Replacement replacement = table_.Find(text);
  if (replacement.bytes > 0) return replacement;
  const Character character = ReadCharacter(text);
  return {character.bytes, character.valid ? text.substr(0, character.bytes) : kReplacement};
}

std::string SentencePieceTokenizer::Normalized(absl::string_view text) const {
  std::string normalized;
  if (file_.remove_extra_whitespaces) {
    while (!text.empty()) {
      const CharacterTable::Replacement first = NormalizedPrefix(text);
      if (first.text != " ") break;
      text.remove_prefix(first.bytes);
    }
  }
  if (text.empty()) return normalized;
  normalized.reserve(text.size() + text.size() / 2);
  const absl::string_view space = file_.escape_whitespaces ? kSpace : " ";
  if (file_.add_dummy_prefix) normalized.append(space.data(), space.size());
  bool is_behind_space = file_.remove_extra_whitespaces;
  while (!text.empty()) {
    if (const size_t kept = has_user_defined_ ? 0 : table_.KeptAscii(text); kept > 0) {
      normalized.append(text.data(), kept);
      text.remove_prefix(kept);
      is_behind_space = false;
      continue;
    }
    CharacterTable::Replacement prefix = NormalizedPrefix(text);
    text.remove_prefix(prefix.bytes);
    while (is_behind_space && absl::ConsumePrefix(&prefix.text, " ")) {
    }
    if (!prefix.text.empty()) {
      for (const char letter : prefix.text) {
        if (letter == ' ') {
          normalized.append(space.data(), space.size());
        } else {
          normalized += letter;
        }
      }
      is_behind_space = prefix.text.back() == ' ';
    }
    if (!file_.remove_extra_whitespaces) is_behind_space = false;
  }
  if (file_.remove_extra_whitespaces) {
    while (absl::EndsWith(normalized, space)) normalized.resize(normalized.size() - space.size());
  }
  return normalized;
}

int32_t SentencePieceTokenizer::PieceId(absl::string_view text) const {
  const auto found = text_ids_.find(text);
  return found == text_ids_.end() ? -1 : found->second;
}

// The best way to every place, from left to right. Sums are floats that begin with the text, as in the library (0.2.3), for
// their rounding decides between ways that are equally good, such as "aa a" and "a aa".
template <bool kMargin>
float SentencePieceTokenizer::EncodeUnigramWord(absl::string_view word, float before,
                                                Scratch& scratch, double& margin) const {
  std::vector<Way>& ways = scratch.ways;
  std::vector<ExactSums>& sums = scratch.sums;
  ways.assign(word.size() + 1, Way{});
  ways[0].score = before;
  if (kMargin) {
    sums.assign(word.size() + 1, ExactSums{});
    sums[0].best = 0;
  }
  const auto offer = [&](size_t begin, size_t end, float score, double added, int32_t id) {
    Way& way = ways[end];
    if (way.bytes == 0 || score > way.score) {
      way = {.score = score, .id = id, .bytes = static_cast<int32_t>(end - begin)};
    }
    if (!kMargin) return;
    const ExactSums from = sums[begin];
    ExactSums& sum = sums[end];
    const double best = from.best + added;
    sum.second = std::max({sum.second, std::min(sum.best, best), from.second + added});
    sum.best = std::max(sum.best, best);
  };
  for (size_t begin = 0; begin < word.size();) {
    const float score = ways[begin].score;
    const size_t character_bytes = std::min(CharacterBytes(word[begin]), word.size() - begin);
    bool has_character = false;
    ByteTrie::Node node = ByteTrie::kRoot;
    for (size_t end = begin; end < word.size();) {
      node = pieces_.Step(node, static_cast<uint8_t>(word[end]));
      if (node == ByteTrie::kNone) break;
      ++end;
      const int32_t id = pieces_.ValueOf(node);
      if (id < 0) continue;
      const size_t bytes = end - begin;
      const double added = has_user_defined_ && file_.pieces[id].kind == Kind::kUserDefined
                               ? static_cast<float>(bytes) * score_max_ - 0.1
                               : static_cast<double>(scores_[id]);
      offer(begin, end, static_cast<float>(added + score), added, id);
      has_character |= bytes == character_bytes;
    }
    if (!has_character) {
      offer(begin, begin + character_bytes, unknown_score_ + score, unknown_score_, -1);
    }
    begin += character_bytes;
  }
  const size_t first = scratch.parts.size();
  for (size_t end = word.size(); end > 0; end -= ways[end].bytes) {
    scratch.parts.push_back(ways[end].id >= 0 ? ways[end].id : -ways[end].bytes);
  }
  std::reverse(scratch.parts.begin() + static_cast<int64_t>(first), scratch.parts.end());
  if (kMargin) margin = sums.back().best - sums.back().second;
  return ways.back().score;
}

// A sum of floats is wrong by at most 2^-24 of the largest score on its way for each of its pieces, of which a word has no more
// than bytes. Two sums that differ by more than twice that, and once more as much, are in order.
float SentencePieceTokenizer::LimitOf(absl::string_view word, double margin) const {
  const auto bytes = static_cast<double>(word.size());
  const double most = std::max(std::fabs(unknown_score_), std::fabs(score_max_));
  const double limit = margin / bytes * (1 << 22) - bytes * most;
  return static_cast<float>(std::min<double>(limit, std::numeric_limits<float>::max()));
}

float SentencePieceTokenizer::ScoreBehind(absl::Span<const int32_t> parts, float score) const {
  for (const int32_t part : parts) {
    score = part >= 0 ? static_cast<float>(static_cast<double>(scores_[part]) + score)
                      : unknown_score_ + score;
  }
  return score;
}

// Where no piece goes over the beginning of a word, the ways through it are those through it alone, and the best is
// remembered. An entry of the cache is its pieces and then its limit.
void SentencePieceTokenizer::EncodeUnigram(absl::string_view text, Scratch& scratch) const {
  double margin = 0;
  if (!pieces_end_at_spaces_ || has_user_defined_) {
    EncodeUnigramWord<false>(text, 0, scratch, margin);
    if (constexpr size_t kWaysKept = 1 << 16; scratch.ways.capacity() > kWaysKept) {
      scratch.ways = {};
    }
    return;
  }
  std::vector<int32_t>& parts = scratch.parts;
  float score = 0;
  while (!text.empty()) {
    const absl::string_view word = TakeWord(text);
    const bool is_cached = word.size() <= WordCache::kWordBytesMax;
    const uint64_t hash = is_cached ? HashOfBytes(word) : 0;
    const size_t before = parts.size();
    if (is_cached && scratch.words.Find(word, hash, parts)) {
      const auto limit = absl::bit_cast<float>(parts.back());
      parts.pop_back();
      if (std::fabs(score) <= limit) {
        score = ScoreBehind(absl::MakeConstSpan(parts).subspan(before), score);
        continue;
      }
      parts.resize(before);
    }
    if (!is_cached) {
      score = EncodeUnigramWord<false>(word, score, scratch, margin);
      continue;
    }
    const float reached = EncodeUnigramWord<true>(word, score, scratch, margin);
    if (const float limit = LimitOf(word, margin); std::fabs(score) <= limit) {
      parts.push_back(absl::bit_cast<int32_t>(limit));
      scratch.words.Put(word, hash, absl::MakeConstSpan(parts).subspan(before));
      parts.pop_back();
    }
    score = reached;
  }
}

// Where no piece goes over the beginning of a word, words are merged each by itself, and remembered.
void SentencePieceTokenizer::EncodeBpe(absl::string_view text, Scratch& scratch) const {
  if (!pieces_end_at_spaces_) return EncodeBpeWord(text, scratch);
  while (!text.empty()) {
    const absl::string_view word = TakeWord(text);
    const bool is_cached = word.size() <= WordCache::kWordBytesMax;
    const uint64_t hash = is_cached ? HashOfBytes(word) : 0;
    if (is_cached && scratch.words.Find(word, hash, scratch.parts)) continue;
    const size_t before = scratch.parts.size();
    EncodeBpeWord(word, scratch);
    if (is_cached) {
      scratch.words.Put(word, hash, absl::MakeConstSpan(scratch.parts).subspan(before));
    }
  }
}

void SentencePieceTokenizer::EncodeBpeWord(absl::string_view text, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Candidate>& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  for (size_t at = 0; at < text.size();) {
    size_t bytes = has_user_defined_ ? user_defined_.Longest(text.substr(at)).bytes : 0;
    const bool is_frozen = bytes > 0;
    if (!is_frozen) bytes = std::min(CharacterBytes(text[at]), text.size() - at);
    const auto index = static_cast<int64_t>(symbols.size());
    symbols.push_back({static_cast<int64_t>(at), static_cast<int64_t>(bytes), index - 1,
                       at + bytes < text.size() ? index + 1 : -1, is_frozen});
    at += bytes;
  }
  const auto offer = [&](int64_t left, int64_t right) {
    if (left < 0 || right < 0 || symbols[left].is_frozen || symbols[right].is_frozen) return;
    const int64_t bytes = symbols[left].bytes + symbols[right].bytes;
    const int32_t id = PieceId(text.substr(symbols[left].begin, bytes));
    if (id < 0) return;
    heap.push_back({file_.pieces[id].score, left, right, bytes});
    std::push_heap(heap.begin(), heap.end());
  };
  for (size_t i = 1; i < symbols.size(); ++i) {
    offer(static_cast<int64_t>(i) - 1, static_cast<int64_t>(i));
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.bytes == 0 || right.bytes == 0 || left.bytes + right.bytes != best.bytes) continue;
    left.bytes = best.bytes;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = best.left;
    right.bytes = 0;
    offer(left.previous, best.left);
    offer(best.left, left.next);
  }
  for (int64_t at = symbols.empty() ? -1 : 0; at >= 0; at = symbols[at].next) {
    const int32_t id = PieceId(text.substr(symbols[at].begin, symbols[at].bytes));
    scratch.parts.push_back(id >= 0 ? id : static_cast<int32_t>(-symbols[at].bytes));
  }
}

absl::StatusOr<std::vector<int32_t>> SentencePieceTokenizer::Encode(absl::string_view text,
                                                                    Framing) const {
  const std::string normalized = Normalized(text);
  ScratchPool<Scratch>::Lease lease(scratches_);
  Scratch& scratch = *lease;
  scratch.parts.clear();
  if (file_.model == SentencePieceFile::Model::kUnigram) {
    EncodeUnigram(normalized, scratch);
  } else {
    EncodeBpe(normalized, scratch);
  }
  std::vector<int32_t> ids;
  ids.reserve(scratch.parts.size());
  size_t at = 0;
  bool is_behind_unknown = false;
  for (const int32_t part : scratch.parts) {
    if (part >= 0) {
      ids.push_back(part);
      if (file_.byte_fallback) at += file_.pieces[part].text.size();
      is_behind_unknown = false;
      continue;
    }
    const auto bytes = static_cast<size_t>(-part);
    if (file_.byte_fallback) {
      for (const char byte : absl::string_view(normalized).substr(at, bytes)) {
        ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
      }
    } else if (!is_behind_unknown) {  // those in a row are one
      ids.push_back(unknown_);
    }
    is_behind_unknown = true;
    at += bytes;
  }
  return ids;
}

absl::StatusOr<std::string> SentencePieceTokenizer::Decode(absl::Span<const int32_t> ids,
                                                           SpecialTokens special_tokens) const {
  std::string text;
  std::string bytes;  // of byte pieces in a row
  const auto flush_bytes = [&] {
    text += CleanUtf8(bytes, 3 * bytes.size() + 3);
    bytes.clear();
  };
  bool is_first = true;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary_size()) return NoSuchToken(i, ids[i], vocabulary_size());
    const SentencePieceFile::Piece& piece = file_.pieces[ids[i]];
    if (piece.kind == Kind::kByte) {
      for (int byte = 0; byte < 256; ++byte) {
        if (byte_ids_[byte] == ids[i]) bytes += static_cast<char>(byte);
      }
      continue;
    }
    flush_bytes();
    if (piece.kind == Kind::kControl) {
      if (special_tokens == SpecialTokens::kShow) text += piece.text;
      continue;
    }
    if (piece.kind == Kind::kUnknown) {
      text += file_.unknown_surface;
      continue;
    }
    absl::string_view rest = piece.text;
    if (is_first && text.empty() && (file_.add_dummy_prefix || file_.remove_extra_whitespaces)) {
      const bool had_space = absl::ConsumePrefix(&rest, kSpace);
      if (had_space && !file_.remove_extra_whitespaces) is_first = false;
    }
    text += absl::StrReplaceAll(rest, {{kSpace, " "}});
  }
  flush_bytes();
  return text;
}

std::optional<int32_t> SentencePieceTokenizer::IdOf(absl::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<int32_t> SentencePieceTokenizer::SpecialId(SpecialToken which) const {
  switch (which) {
    case SpecialToken::kBos:
      return IdOf(file_.bos_piece);
    case SpecialToken::kEos:
      return IdOf(file_.eos_piece);
    case SpecialToken::kPadding:
      return IdOf(file_.padding_piece);
    case SpecialToken::kUnknown:
      return unknown_;
    case SpecialToken::kMask:
      break;
  }
  for (const char* const name : UsualNames(which)) {
    const std::optional<int32_t> id = IdOf(name);
    if (id.has_value()) return id;
  }
  return std::nullopt;
}

}  // namespace penstock
