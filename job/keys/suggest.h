// "Did you mean": the nearest of some known names to one that was mistyped.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace penstock {

// Inserted, removed, replaced and swapped neighbouring characters between `a` and `b` (the
// restricted Damerau-Levenshtein distance).
int EditDistance(absl::string_view a, absl::string_view b);

// The nearest of `names` to `typed`, the first among equals, or an empty string if none is close:
// at most one edit in three characters, and at most three edits.
std::string NearestName(absl::string_view typed, const std::vector<std::string>& names);

// The names that a pattern (base/glob.h) would match after the fewest edits, however many, nearest first: three, or as many as
// there are.
std::vector<std::string> NearestNames(absl::string_view pattern, std::vector<std::string> names);

}  // namespace penstock
