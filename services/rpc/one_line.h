// What others wrote, as it may stand in a log.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// `text` with control characters and bytes that are not UTF-8 replaced ("\n" by the two letters), cut to a few thousand
// bytes.
std::string OneLine(absl::string_view text);

}  // namespace penstock
