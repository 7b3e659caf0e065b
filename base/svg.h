// The two things that every SVG picture writes: text and numbers.
//
// Pure functions.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// `text` for the content of an element or the value of an attribute in double quotes.
std::string SvgText(absl::string_view text);

// A coordinate with at most `decimals` (1 or more), without trailing zeros, and never "-0".
std::string SvgNumber(double value, int decimals);

}  // namespace penstock
