// Characters of UTF-8 text, one by one.
//
// Plain functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr char32_t kCharactersEnd = 0x110000;

struct Character {
  char32_t code = 0;
  uint32_t bytes = 0;  // that it takes up
  bool valid = true;   // false: one byte that is part of no character, read as U+FFFD
};

// The character that `text` begins with, by the well-formed sequences of the Unicode standard, table 3-7.
// REQUIRES: text is not empty.
inline Character ReadCharacter(absl::string_view text) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const auto follows = [&](size_t k, uint8_t low = 0x80, uint8_t high = 0xBF) {
    return k < text.size() && byte(k) >= low && byte(k) <= high;
  };
  if (first >= 0xC2 && first <= 0xDF && follows(1)) {
    return {char32_t(first & 0x1F) << 6 | char32_t(byte(1) & 0x3F), 2};
  }
  if (first >= 0xE0 && first <= 0xEF &&
      follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && follows(2)) {
    return {char32_t(first & 0x0F) << 12 | char32_t(byte(1) & 0x3F) << 6 | char32_t(byte(2) & 0x3F),
            3};
  }
  if (first >= 0xF0 && first <= 0xF4 &&
      follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && follows(2) &&
      follows(3)) {
    return {char32_t(first & 0x07) << 18 | char32_t(byte(1) & 0x3F) << 12 |
                char32_t(byte(2) & 0x3F) << 6 | char32_t(byte(3) & 0x3F),
            4};
  }
  return {kReplacementCharacter, 1, false};
}

// Returns the bytes of the character that well-formed text begins with, by its first byte.
inline size_t CharacterBytes(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// REQUIRES: code is a character: below kCharactersEnd and no surrogate.
inline void AppendCharacter(char32_t code, std::string& text) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    text += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// Unicode's property White_Space.
inline bool IsWhiteSpace(char32_t code) {
  return (code >= 9 && code <= 13) || code == ' ' || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

}  // namespace penstock
