// The letters that byte-level vocabularies write bytes with: those of ASCII and Latin-1 that can be seen are themselves, the
// other 68 bytes are U+0100 to U+0143, in order.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

char32_t LetterOfByte(uint8_t byte);

// `bytes` in letters.
std::string LettersOfBytes(absl::string_view bytes);

// The bytes that `letters` stand for; nothing if there is another character among them.
std::optional<std::string> BytesOfLetters(absl::string_view letters);

}  // namespace penstock
