#include "tokenizer/sentence_piece_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenizer/json_tokenizer.h"

namespace penstock {
namespace {

using Kind = SentencePieceFile::Kind;

bool HasSpaceBehindCharacter(absl::string_view piece) {
  for (size_t at = piece.find(kPieceSpace); at != absl::string_view::npos;
       at = piece.find(kPieceSpace, at + kPieceSpace.size())) {
    if (at > 0 && !absl::EndsWith(piece.substr(0, at), kPieceSpace)) return true;
  }
  return false;
}

// Takes the spaces that `text` begins with and what follows up to the next.
absl::string_view TakeWord(absl::string_view& text) {
  size_t end = 0;
  while (absl::StartsWith(text.substr(end), kPieceSpace)) end += kPieceSpace.size();
  end = std::min(text.find(kPieceSpace, end), text.size());
  const absl::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePieceModel(absl::string_view model) {
  PENSTOCK_ASSIGN_OR_RETURN(SentencePieceFile file, ReadSentencePieceFile(model));
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                            SentencePieceTokenizer::Make(std::move(file)));
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> SentencePieceTokenizer::Make(
    SentencePieceFile read) {
  auto file = std::make_unique<const SentencePieceFile>(std::move(read));
  PENSTOCK_ASSIGN_OR_RETURN(CharacterTable table, CharacterTable::Make(file->character_table));
  Pieces user_defined;
  std::vector<UnigramPieces::Piece> unigram_pieces;
  std::vector<PieceMerges::Piece> merged_pieces;
  for (size_t i = 0; i < file->pieces.size(); ++i) {
    const SentencePieceFile::Piece& piece = file->pieces[i];
    const auto id = static_cast<int32_t>(i);
    const bool is_user_defined = piece.kind == Kind::kUserDefined;
    if (piece.kind != Kind::kNormal && !is_user_defined) continue;
    if (is_user_defined) user_defined.emplace_back(piece.text, id);
    if (file->model == SentencePieceFile::Model::kUnigram) {
      unigram_pieces.push_back({piece.text, id, piece.score, is_user_defined});
    } else {
      merged_pieces.push_back({piece.text, id, piece.score});
    }
  }
  std::optional<UnigramPieces> unigram;
  std::optional<PieceMerges> merges;
  if (file->model == SentencePieceFile::Model::kUnigram) {
    unigram.emplace(unigram_pieces);
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(merges, PieceMerges::Make(merged_pieces, user_defined));
  }
  SentencePieceNormalizer normalizer(*file, std::move(table), user_defined);
  return std::unique_ptr<SentencePieceTokenizer>(
      new SentencePieceTokenizer(std::move(file), std::move(normalizer), std::move(unigram),
                                 std::move(merges), !user_defined.empty()));
}

SentencePieceTokenizer::SentencePieceTokenizer(std::unique_ptr<const SentencePieceFile> file,
                                               SentencePieceNormalizer normalizer,
                                               std::optional<UnigramPieces> unigram,
                                               std::optional<PieceMerges> merges,
                                               bool has_user_defined)
    : file_(std::move(file)),
      normalizer_(std::move(normalizer)),
      unigram_(std::move(unigram)),
      merges_(std::move(merges)),
      has_user_defined_(has_user_defined) {
  byte_ids_.fill(-1);
  for (size_t i = 0; i < file_->pieces.size(); ++i) {
    const SentencePieceFile::Piece& piece = file_->pieces[i];
    const auto id = static_cast<int32_t>(i);
    ids_[piece.text] = id;
    piece_bytes_.push_back(static_cast<int32_t>(piece.text.size()));
    if (piece.kind == Kind::kUnknown) unknown_ = id;
    if (piece.kind == Kind::kByte) {
      for (int byte = 0; byte < 256; ++byte) {
        if (piece.text == absl::StrFormat("<0x%02X>", byte)) byte_ids_[byte] = id;
      }
    }
    if (piece.kind != Kind::kNormal && piece.kind != Kind::kUserDefined) continue;
    if (HasSpaceBehindCharacter(piece.text)) pieces_end_at_spaces_ = false;
  }
}

// In the cache, pieces of a unigram model have their limit behind them.
float SentencePieceTokenizer::EncodeWord(absl::string_view word, Scratch& scratch) const {
  std::vector<int32_t>& parts = scratch.parts;
  parts.clear();
  float limit = std::numeric_limits<float>::max();
  const bool is_cached = word.size() <= WordCache::kWordBytesMax;
  const uint64_t hash = is_cached ? HashOfBytes(word) : 0;
  if (is_cached && scratch.words.Find(word, hash, parts)) {
    if (!unigram_.has_value()) return limit;
    limit = absl::bit_cast<float>(parts.back());
    parts.pop_back();
    if (std::fabs(scratch.score) <= limit) {
      scratch.score = unigram_->ScoreBehind(parts, scratch.score);
      return limit;
    }
    parts.clear();
  }
  if (!unigram_.has_value()) {
    merges_->Encode(word, scratch.merges, parts);
    if (is_cached) scratch.words.Put(word, hash, parts);
    return limit;
  }
  if (!is_cached) {
    scratch.score = unigram_->Encode(word, scratch.score, scratch.unigram, parts);
    return -1;
  }
  const float before = std::fabs(scratch.score);
  scratch.score = unigram_->EncodeWithLimit(word, scratch.score, scratch.unigram, parts, limit);
  if (before > limit) return -1;
  parts.push_back(absl::bit_cast<int32_t>(limit));
  scratch.words.Put(word, hash, parts);
  parts.pop_back();
  return limit;
}

void SentencePieceTokenizer::AddIds(absl::string_view word, Scratch& scratch) const {
  size_t at = 0;
  for (const int32_t part : scratch.parts) {
    if (part >= 0) {
      *scratch.ids.Room(1) = part;
      scratch.ids.End(1);
      if (file_->byte_fallback) at += static_cast<size_t>(piece_bytes_[part]);
      scratch.is_behind_unknown = false;
      continue;
    }
    const auto bytes = static_cast<size_t>(-part);
    if (file_->byte_fallback) {
      int32_t* room = scratch.ids.Room(bytes);
      for (const char byte : word.substr(at, bytes))
        *room++ = byte_ids_[static_cast<uint8_t>(byte)];
      scratch.ids.End(bytes);
    } else if (!scratch.is_behind_unknown) {  // those in a row are one
      *scratch.ids.Room(1) = unknown_;
      scratch.ids.End(1);
    }
    scratch.is_behind_unknown = true;
    at += bytes;
  }
}

void SentencePieceTokenizer::EncodeNormalized(absl::string_view text, Scratch& scratch) const {
  if (pieces_end_at_spaces_ && !(unigram_.has_value() && has_user_defined_)) {
    while (!text.empty()) {
      const absl::string_view word = TakeWord(text);
      EncodeWord(word, scratch);
      AddIds(word, scratch);
    }
    return;
  }
  scratch.parts.clear();
  if (unigram_.has_value()) {
    unigram_->Encode(text, 0, scratch.unigram, scratch.parts);
  } else {
    merges_->Encode(text, scratch.merges, scratch.parts);
  }
  AddIds(text, scratch);
}

void SentencePieceTokenizer::EncodeByWords(absl::string_view text, Scratch& scratch) const {
  constexpr size_t kRead = ShortWord::kBytesMax + 1;  // bytes at a time
  SentencePieceNormalizer::Result& normalized = scratch.normalized;
  normalized.text.clear();
  char tail[2 * kRead];
  const char* at = text.data();
  const char* end = at + text.size();
  bool is_in_tail = false;
  // Before the next word, when it is normalized.
  size_t spaces = file_->add_dummy_prefix ? 1 : 0;
  bool is_first = true;
  while (true) {
    // Words near the end are read with spaces behind them.
    if (!is_in_tail && static_cast<size_t>(end - at) < kRead) {
      const auto rest = static_cast<size_t>(end - at);
      std::memset(tail, ' ', sizeof(tail));
      std::memcpy(tail, at, rest);
      at = tail;
      end = tail + rest;
      is_in_tail = true;
    }
    if (at == end && normalized.text.empty() && (spaces == 0 || file_->remove_extra_whitespaces)) {
      return;
    }
    if (at < end && *at == ' ') {
      ++at;
      if (!file_->remove_extra_whitespaces) {
        ++spaces;
      } else if (!is_first) {
        spaces = 1;
      }
      continue;
    }
    const ShortWord key = ShortWord::Read(at);
    size_t bytes = key.bytes;
    const bool is_short = spaces == 1 && bytes <= ShortWord::kBytesMax && bytes > 0;
    is_first = false;
    if (is_short && normalized.text.empty()) {
      const ShortWords::Found known = scratch.short_words.Find(key);
      if (known.ids != nullptr && std::fabs(scratch.score) <= known.limit) {
        int32_t* const room = scratch.ids.Room(ShortWords::kIdsMax);
        // Most words have few ids. Moving this many at once takes less time than counting them.
        std::memcpy(room, known.ids, ShortWords::kRead * sizeof(int32_t));
        for (size_t i = ShortWords::kRead; i < known.count; ++i) room[i] = known.ids[i];
        scratch.ids.End(known.count);
        if (unigram_.has_value()) {
          scratch.score = unigram_->ScoreBehind({known.ids, known.count}, scratch.score);
        }
        scratch.is_behind_unknown = false;
        at += bytes;
        spaces = 0;
        continue;
      }
    }
    if (bytes > ShortWord::kBytesMax) {
      bytes = std::min(absl::string_view(at, static_cast<size_t>(end - at)).find(' '),
                       static_cast<size_t>(end - at));
    }
    const bool is_last = at + bytes == end;
    const bool is_alone = normalized.text.empty();
    if (is_alone) {
      normalizer_.Begin(spaces, normalized);
    } else {
      for (; spaces > 0; --spaces) normalizer_.Add(" ", normalized);
    }
    spaces = 0;
    normalizer_.Add({at, bytes}, normalized);
    at += bytes;
    // A space at the end is part of the next word.
    const bool ends_with_space = absl::EndsWith(normalized.text, kPieceSpace);
    if (!is_last && ends_with_space) continue;
    if (is_last) normalizer_.End(normalized);
    absl::string_view rest = normalized.text;
    while (!rest.empty()) {
      const absl::string_view word = TakeWord(rest);
      const float limit = EncodeWord(word, scratch);
      AddIds(word, scratch);
      if (is_short && is_alone && !ends_with_space && word.size() == normalized.text.size() &&
          limit >= 0 && std::all_of(scratch.parts.begin(), scratch.parts.end(), [](int32_t part) {
            return part >= 0;
          })) {
        scratch.short_words.Put(key, scratch.parts, limit);
      }
    }
    normalized.text.clear();
    if (is_last) return;
  }
}

absl::StatusOr<std::vector<int32_t>> SentencePieceTokenizer::Encode(absl::string_view text,
                                                                    Framing) const {
  ScratchPool<Scratch>::Lease lease(scratches_);
  Scratch& scratch = *lease;
  scratch.ids.Clear();
  scratch.score = 0;
  scratch.is_behind_unknown = false;
  if (text.empty()) return std::vector<int32_t>();
  if (pieces_end_at_spaces_ && normalizer_.parts_are_apart() &&
      !(unigram_.has_value() && has_user_defined_)) {
    EncodeByWords(text, scratch);
  } else {
    EncodeNormalized(normalizer_.Normalized(text), scratch);
  }
  return scratch.ids.Copy();
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
    const SentencePieceFile::Piece& piece = file_->pieces[ids[i]];
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
      text += file_->unknown_surface;
      continue;
    }
    absl::string_view rest = piece.text;
    if (is_first && text.empty() && (file_->add_dummy_prefix || file_->remove_extra_whitespaces)) {
      const bool had_space = absl::ConsumePrefix(&rest, kPieceSpace);
      if (had_space && !file_->remove_extra_whitespaces) is_first = false;
    }
    text += absl::StrReplaceAll(rest, {{kPieceSpace, " "}});
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
      return IdOf(file_->bos_piece);
    case SpecialToken::kEos:
      return IdOf(file_->eos_piece);
    case SpecialToken::kPadding:
      return IdOf(file_->padding_piece);
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
