#include "base/utf8.h"

#include <cstdint>

#include "base/check.h"

namespace penstock {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr absl::string_view kCutMark = "...";

// Bytes of the character that `text` begins with; 0 if it begins with none.
// The well-formed sequences of the Unicode standard, table 3-7.
size_t CharacterLength(absl::string_view text) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const size_t length = byte(0) < 0x80   ? 1
                        : byte(0) < 0xC2 ? 0
                        : byte(0) < 0xE0 ? 2
                        : byte(0) < 0xF0 ? 3
                        : byte(0) < 0xF5 ? 4
                                         : 0;
  if (length > text.size()) {
    return 0;
  }
  for (size_t k = 1; k < length; ++k) {
    if ((byte(k) & 0xC0) != 0x80) {
      return 0;
    }
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  const bool forbidden =
      (byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xED && byte(1) >= 0xA0) ||
      (byte(0) == 0xF0 && byte(1) < 0x90) || (byte(0) == 0xF4 && byte(1) >= 0x90);
  return forbidden ? 0 : length;
}

}  // namespace

size_t FindInvalidUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = CharacterLength(text.substr(i));
    if (length == 0) {
      return i;
    }
    i += length;
  }
  return absl::string_view::npos;
}

std::string CleanUtf8(absl::string_view text, size_t bytes_max) {
  PENSTOCK_CHECK(bytes_max >= kCutMark.size());
  std::string clean;
  size_t cut = 0;  // the end of the last character that leaves room for the mark
  for (size_t i = 0; i < text.size() && clean.size() <= bytes_max;) {
    const size_t length = CharacterLength(text.substr(i));
    const absl::string_view character = length == 0 ? kReplacement : text.substr(i, length);
    clean.append(character.data(), character.size());
    i += length == 0 ? 1 : length;
    if (clean.size() + kCutMark.size() <= bytes_max) {
      cut = clean.size();
    }
  }
  if (clean.size() > bytes_max) {
    clean.resize(cut);
    clean.append(kCutMark.data(), kCutMark.size());
  }
  return clean;
}

}  // namespace penstock
