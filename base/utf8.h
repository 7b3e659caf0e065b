// UTF-8. Protobuf's strings must be it: a message with other text in one can be written and never
// read back, so text from elsewhere (a peer's error, the system's, a user's) is checked or cleaned
// where it enters a message.
//
// Plain functions.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// Index of the first byte that is not part of a well-formed character, or npos.
size_t FindInvalidUtf8(absl::string_view text);

// `text` with U+FFFD for every byte that is not part of a character, and at most `bytes_max` long:
// what is longer ends between two characters, with "..." after them. REQUIRES: bytes_max >= 3.
std::string CleanUtf8(absl::string_view text, size_t bytes_max);

}  // namespace penstock
