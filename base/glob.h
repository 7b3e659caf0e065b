// Patterns of names, as shells have them for files.
//
// A plain function.
#pragma once

#include "absl/strings/string_view.h"

namespace penstock {

// Whether all of `text` is as `pattern` says: * stands for any characters or none, ? for any one, all else for itself.
bool MatchesGlob(absl::string_view pattern, absl::string_view text);

}  // namespace penstock
