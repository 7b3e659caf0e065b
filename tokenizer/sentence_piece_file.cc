#include "tokenizer/sentence_piece_file.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenizer/limits.h"

namespace penstock {
namespace {

// Reads the fields of a protobuf message one by one.
class Fields {
 public:
  explicit Fields(absl::string_view bytes) : all_(bytes.size()), rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }
  // The next field: `number`, and its value in `whole` or `bytes`, by its wire type.
  absl::Status Next() {
    uint64_t tag = 0;
    PENSTOCK_RETURN_IF_ERROR(Varint(tag));
    number = tag >> 3;
    wire_type = static_cast<int>(tag & 7);
    switch (wire_type) {
      case 0:
        return Varint(whole);
      case 1:
        return Take(8);
      case 2: {
        uint64_t size = 0;
        PENSTOCK_RETURN_IF_ERROR(Varint(size));
        return Take(size);
      }
      case 5:
        return Take(4);
      default:
        return Broken("has a field of an unknown kind");
    }
  }

  uint64_t number = 0;
  int wire_type = 0;
  uint64_t whole = 0;
  absl::string_view bytes;

  absl::Status Broken(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " at byte ", all_ - rest_.size(), " of a message of ", all_,
        "; expected a model that spm_train wrote; it may be truncated: copy it once more"));
  }

 private:
  absl::Status Varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return Broken("ends within a number");
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return absl::OkStatus();
    }
    return Broken("has a number of more than 64 bits");
  }
  absl::Status Take(uint64_t size) {
    if (size > rest_.size()) return Broken(absl::StrCat("ends within a field of ", size, " bytes"));
    bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return absl::OkStatus();
  }

  const size_t all_;
  absl::string_view rest_;
};

absl::Status Refuse(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat(what, " is not implemented; tokenizer/README.md lists what is"));
}

// Fields have the numbers of sentencepiece_model.proto.

absl::StatusOr<SentencePieceFile::Piece> ReadPiece(absl::string_view bytes, size_t id) {
  SentencePieceFile::Piece piece;
  Fields fields(bytes);
  while (!fields.at_end()) {
    PENSTOCK_RETURN_IF_ERROR(fields.Next());
    if (fields.number == 1 && fields.wire_type == 2) {
      piece.text = std::string(fields.bytes);
    } else if (fields.number == 2 && fields.wire_type == 5) {
      uint32_t bits;
      std::memcpy(&bits, fields.bytes.data(), sizeof(bits));
      piece.score = std::bit_cast<float>(bits);
    } else if (fields.number == 3 && fields.wire_type == 0) {
      if (fields.whole < 1 || fields.whole > 6) {
        return Refuse(absl::StrCat("pieces[", id, "].type ", fields.whole));
      }
      piece.kind = static_cast<SentencePieceFile::Kind>(fields.whole);
    }
  }
  if (piece.text.empty() || piece.text.size() > kTokenBytesMax ||
      FindInvalidUtf8(piece.text) != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pieces[", id, "]: expected a piece of UTF-8 with 1 to ", kTokenBytesMax, " bytes"));
  }
  if (!std::isfinite(piece.score)) {
    return absl::InvalidArgumentError(absl::StrCat("pieces[", id, "].score is not finite"));
  }
  if (piece.kind == SentencePieceFile::Kind::kUnused) {
    return Refuse(absl::StrCat("pieces[", id, "].type UNUSED"));
  }
  return piece;
}

absl::Status ReadTrainerSpec(absl::string_view bytes, SentencePieceFile& file) {
  Fields fields(bytes);
  while (!fields.at_end()) {
    PENSTOCK_RETURN_IF_ERROR(fields.Next());
    const bool is_text = fields.wire_type == 2;
    const bool is_whole = fields.wire_type == 0;
    if (fields.number == 3 && is_whole) {
      if (fields.whole != 1 && fields.whole != 2) {
        return Refuse(absl::StrCat("trainer_spec.model_type ", fields.whole == 3   ? "word"
                                                               : fields.whole == 4 ? "char"
                                                                                   : "unknown"));
      }
      file.model = static_cast<SentencePieceFile::Model>(fields.whole);
    } else if (fields.number == 24 && is_whole && fields.whole != 0) {
      return Refuse("trainer_spec.treat_whitespace_as_suffix");
    } else if (fields.number == 35 && is_whole) {
      file.byte_fallback = fields.whole != 0;
    } else if (fields.number == 44 && is_text) {
      file.unknown_surface = std::string(fields.bytes);
    } else if (fields.number == 46 && is_text) {
      file.bos_piece = std::string(fields.bytes);
    } else if (fields.number == 47 && is_text) {
      file.eos_piece = std::string(fields.bytes);
    } else if (fields.number == 48 && is_text) {
      file.padding_piece = std::string(fields.bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadNormalizerSpec(absl::string_view bytes, SentencePieceFile& file) {
  Fields fields(bytes);
  while (!fields.at_end()) {
    PENSTOCK_RETURN_IF_ERROR(fields.Next());
    if (fields.number == 2 && fields.wire_type == 2) {
      file.character_table = std::string(fields.bytes);
    } else if (fields.wire_type == 0 && fields.number >= 3 && fields.number <= 5) {
      (fields.number == 3   ? file.add_dummy_prefix
       : fields.number == 4 ? file.remove_extra_whitespaces
                            : file.escape_whitespaces) = fields.whole != 0;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDenormalizer(absl::string_view bytes) {
  Fields fields(bytes);
  while (!fields.at_end()) {
    PENSTOCK_RETURN_IF_ERROR(fields.Next());
    if (fields.number == 2 && fields.wire_type == 2 && !fields.bytes.empty()) {
      return Refuse("denormalizer_spec.precompiled_charsmap");
    }
  }
  return absl::OkStatus();
}

// Whether it is "<0x00>" to "<0xFF>".
bool IsByteName(absl::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && absl::StartsWith(text, "<0x") && is_digit(text[3]) &&
         is_digit(text[4]) && text[5] == '>';
}

absl::Status CheckPieces(const SentencePieceFile& file) {
  absl::flat_hash_set<absl::string_view> seen;
  int unknown = 0;
  int bytes = 0;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePieceFile::Piece& piece = file.pieces[id];
    if (!seen.insert(piece.text).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("pieces[", id, "]: \"", piece.text, "\" is there twice"));
    }
    unknown += piece.kind == SentencePieceFile::Kind::kUnknown;
    if (piece.kind != SentencePieceFile::Kind::kByte) continue;
    ++bytes;
    if (!IsByteName(piece.text)) {
      return absl::InvalidArgumentError(absl::StrCat("pieces[", id,
                                                     "]: is of type BYTE and has the text \"",
                                                     piece.text, "\"; expected <0x00> to <0xFF>"));
    }
  }
  if (unknown != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", unknown, " pieces of type UNKNOWN; expected one"));
  }
  if (file.byte_fallback && bytes != 256) {
    return absl::InvalidArgumentError(absl::StrCat(
        "trainer_spec.byte_fallback needs a piece for each of 256 bytes, but there are ", bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SentencePieceFile> ReadSentencePieceFile(absl::string_view bytes) {
  SentencePieceFile file;
  Fields fields(bytes);
  while (!fields.at_end()) {
    PENSTOCK_RETURN_IF_ERROR(fields.Next());
    if (fields.wire_type != 2) continue;
    if (fields.number == 1) {
      if (file.pieces.size() == static_cast<size_t>(kVocabularyMax)) {
        return absl::OutOfRangeError(absl::StrCat("has more than ", kVocabularyMax, " pieces"));
      }
      PENSTOCK_ASSIGN_OR_RETURN(SentencePieceFile::Piece piece,
                                ReadPiece(fields.bytes, file.pieces.size()));
      file.pieces.push_back(std::move(piece));
    } else if (fields.number == 2) {
      PENSTOCK_RETURN_IF_ERROR(ReadTrainerSpec(fields.bytes, file));
    } else if (fields.number == 3) {
      PENSTOCK_RETURN_IF_ERROR(ReadNormalizerSpec(fields.bytes, file));
    } else if (fields.number == 5) {
      PENSTOCK_RETURN_IF_ERROR(CheckDenormalizer(fields.bytes));
    }
  }
  if (file.pieces.empty()) {
    return absl::InvalidArgumentError("has no pieces; expected a model that spm_train wrote");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckPieces(file));
  return file;
}

absl::StatusOr<CharacterTable> CharacterTable::Make(absl::string_view table) {
  CharacterTable made;
  if (table.empty()) return made;
  uint32_t trie_bytes = 0;
  if (table.size() >= 4) std::memcpy(&trie_bytes, table.data(), 4);
  if (table.size() < 4 || trie_bytes > table.size() - 4 || trie_bytes % 4 != 0 ||
      trie_bytes < 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("normalizer_spec.precompiled_charsmap: expected a trie of whole words within ",
                     table.size(), " bytes, got one of ", trie_bytes,
                     "; the file may be truncated: copy it once more"));
  }
  made.units_.resize(trie_bytes / 4);
  std::memcpy(made.units_.data(), table.data() + 4, trie_bytes);
  made.texts_ = std::string(table.substr(4 + trie_bytes));
  if (made.texts_.empty() || made.texts_.back() != '\0' ||
      FindInvalidUtf8(made.texts_) != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        "normalizer_spec.precompiled_charsmap: expected texts of UTF-8, each with a zero behind "
        "it");
  }
  made.FindKept();
  made.FindSpaces();
  for (int first = 0xC2; first <= 0xF4; ++first) {
    bool ends = false;
    const size_t place = made.Step(made.Start(), static_cast<uint8_t>(first), ends);
    if (place == kNowhere) continue;
    const auto bytes = static_cast<int>(CharacterBytes(static_cast<char>(first)));
    made.FindFirst(place, static_cast<char32_t>(first & (0x7F >> bytes)), bytes - 1);
  }
  return made;
}

namespace {

// A unit of the array: bits 0 to 7 the byte that leads here (bit 31 set: a value instead), bit 8 that a value is among the
// children, bits 10 to 30 how far the children are (in 256s if bit 9 is set). A child is at the place that is the
// exclusive or of its parent's, the offset and the byte.
size_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

}  // namespace

size_t CharacterTable::Start() const { return units_.empty() ? kNowhere : OffsetOf(units_[0]); }

size_t CharacterTable::Step(size_t place, uint8_t byte, bool& ends) const {
  place ^= byte;
  if (byte == 0 || place >= units_.size()) return kNowhere;
  const uint32_t unit = units_[place];
  if ((unit & (1u << 31 | 0xFF)) != byte) return kNowhere;
  place ^= OffsetOf(unit);
  if (place >= units_.size()) return kNowhere;
  ends = (unit >> 8 & 1) != 0;
  return place;
}

void CharacterTable::FindKept() {
  for (int first = 0; first < 0x80; ++first) {
    bool ends = false;
    const size_t place =
        units_.empty() ? kNowhere : Step(Start(), static_cast<uint8_t>(first), ends);
    bool leads_on = false;
    for (int second = 0; second < 0x80 && place != kNowhere; ++second) {
      bool ends_there = false;
      leads_on |= Step(place, static_cast<uint8_t>(second), ends_there) != kNowhere;
    }
    keeps_[first] = first != ' ' && !ends && !leads_on;
  }
}

// `code`: the bits of the bytes that lead to `place`, which `bytes_left` more make a character.
void CharacterTable::FindFirst(size_t place, char32_t code, int bytes_left) {
  if (bytes_left == 0) {
    if (code < kCharactersEnd) first_.Set(code, 0);
    return;
  }
  for (uint32_t byte = 0x80; byte < 0xC0; ++byte) {
    bool ends = false;
    const size_t next = Step(place, static_cast<uint8_t>(byte), ends);
    if (next != kNowhere) FindFirst(next, code << 6 | (byte & 0x3F), bytes_left - 1);
  }
}

// Looks at every place that can be reached, but at each once, for a damaged table may lead in circles.
void CharacterTable::FindSpaces() {
  if (Start() >= units_.size()) return;
  std::vector<bool> seen(units_.size());
  std::vector<size_t> places = {Start()};
  seen[Start()] = true;
  while (!places.empty()) {
    const size_t place = places.back();
    places.pop_back();
    for (int byte = 1; byte < 256; ++byte) {
      bool ends = false;
      const size_t next = Step(place, static_cast<uint8_t>(byte), ends);
      if (next == kNowhere) continue;
      if (byte == ' ' && place == Start()) {
        for (int behind = 1; behind < 256; ++behind) {
          replaces_beyond_spaces_ |= Step(next, static_cast<uint8_t>(behind), ends) != kNowhere;
        }
      }
      replaces_beyond_spaces_ |= (byte == ' ' && place != Start()) || next == Start();
      if (seen[next]) continue;
      seen[next] = true;
      places.push_back(next);
    }
  }
}

CharacterTable::Replacement CharacterTable::Find(absl::string_view text) const {
  Replacement longest;
  size_t place = Start();
  for (size_t i = 0; i < text.size() && place != kNowhere; ++i) {
    bool ends = false;
    place = Step(place, static_cast<uint8_t>(text[i]), ends);
    if (!ends) continue;
    const uint32_t value = units_[place] & ~(1u << 31);
    if (value >= texts_.size()) break;
    longest = {i + 1, absl::string_view(texts_.c_str() + value)};
  }
  return longest;
}

}  // namespace penstock
