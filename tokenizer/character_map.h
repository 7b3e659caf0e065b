// CharacterMap: a number for each of some characters, in a table of two levels: a page for each 256 characters that has one.
//
// A value that is filled first; then Of may be called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tokenizer/characters.h"

namespace penstock {

class CharacterMap {
 public:
  static constexpr int32_t kNone = -1;

  CharacterMap() : values_(kPageCharacters, kNone) {}

  // REQUIRES: code < kCharactersEnd.
  void Set(char32_t code, int32_t value) {
    uint32_t& page = pages_[code / kPageCharacters];
    if (page == 0) {
      page = static_cast<uint32_t>(values_.size());
      values_.resize(values_.size() + kPageCharacters, kNone);
    }
    values_[page + code % kPageCharacters] = value;
  }
  // kNone for others. REQUIRES: code < kCharactersEnd.
  int32_t Of(char32_t code) const {
    return values_[pages_[code / kPageCharacters] + code % kPageCharacters];
  }

 private:
  static constexpr uint32_t kPageCharacters = 256;
  std::array<uint32_t, kCharactersEnd / kPageCharacters> pages_ =
      {};  // where they begin; 0: of kNone
  std::vector<int32_t> values_;
};

}  // namespace penstock
