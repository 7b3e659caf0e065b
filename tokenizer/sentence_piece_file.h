// SentencePieceFile: what a `.model` of SentencePiece says. It is a protobuf message, which is read here byte by byte: the
// library of SentencePiece cannot be linked beside gRPC (data/sentence_piece.h says why).
//
// A value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/character_map.h"
#include "tokenizer/characters.h"

namespace penstock {

struct SentencePieceFile {
  enum class Kind : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string text;
    float score = 0;
    Kind kind = Kind::kNormal;
  };
  enum class Model : uint8_t { kUnigram = 1, kBpe };

  std::vector<Piece> pieces;  // by id
  Model model = Model::kUnigram;
  bool byte_fallback = false;
  std::string unknown_surface = " \u2047 ";  // what an unknown token is decoded to
  std::string bos_piece = "<s>", eos_piece = "</s>", padding_piece = "<pad>";
  // Of the normalizer. Its table (see CharacterTable) or "".
  std::string character_table;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Errors: InvalidArgument (truncated, or no such message, with the place), Unimplemented (the models word and char, unused
// pieces, white space as a suffix, a denormalizer, by name), OutOfRange (limits.h).
absl::StatusOr<SentencePieceFile> ReadSentencePieceFile(absl::string_view bytes);

// CharacterTable: which characters the normalizer replaces: a trie in an array of words (a double array) and the texts that
// replace what it finds. A view of the file's table.
class CharacterTable {
 public:
  CharacterTable() { FindKept(); }  // replaces nothing
  // Errors: InvalidArgument.
  static absl::StatusOr<CharacterTable> Make(absl::string_view table);

  struct Replacement {
    size_t bytes = 0;  // of the text that are replaced; 0: none
    absl::string_view text;
  };
  // Of the longest match that `text` begins with.
  Replacement Find(absl::string_view text) const;
  // The bytes of the character that `text` begins with, if it is no space and nothing is put in the place of it, whatever
  // follows; or else 0. REQUIRES: text is not empty.
  size_t KeptCharacter(absl::string_view text) const {
    const auto first = static_cast<uint8_t>(text.front());
    if (first < 0x80) {
      return keeps_[first] && (text.size() == 1 || static_cast<uint8_t>(text[1]) < 0x80) ? 1 : 0;
    }
    const Character character = ReadCharacter(text);
    return character.valid && first_.Of(character.code) == CharacterMap::kNone ? character.bytes
                                                                               : 0;
  }
  // Whether it replaces something in which a space is beside something else.
  bool replaces_beyond_spaces() const { return replaces_beyond_spaces_; }
  // All that it puts in the place of something.
  absl::string_view texts() const { return texts_; }

 private:
  // A place in the array, from which bytes lead to others; kNowhere: from no match.
  static constexpr size_t kNowhere = SIZE_MAX;
  size_t Start() const;
  // Goes on by a byte. Sets `ends` if a match ends there.
  size_t Step(size_t place, uint8_t byte, bool& ends) const;
  void FindKept();
  void FindFirst(size_t place, char32_t code, int bytes_left);
  void FindSpaces();

  std::vector<uint32_t> units_;
  std::string texts_;                 // each with a zero behind it
  std::array<bool, 256> keeps_ = {};  // by ASCII character that another one follows
  CharacterMap first_;                // those beyond ASCII that what is replaced begins with
  bool replaces_beyond_spaces_ = false;
};

}  // namespace penstock
