// Words of commands that people copy from our output into a shell.
//
// Pure functions.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// `text` as one word: as it is if a shell takes nothing in it for more than itself, else in quotes.
std::string ShellWord(absl::string_view text);

}  // namespace penstock
