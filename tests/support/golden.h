// Golden files: expected text kept under tests/golden/, so that a change shows as a reviewable diff.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// Expects `actual` to equal tests/golden/`name`. With UPDATE_GOLDEN=1 in the environment it writes
// the file instead.
void ExpectEqualsGolden(absl::string_view name, const std::string& actual);

// The same of a file that the sources are published with: `path` is below their root.
void ExpectEqualsSourceFile(absl::string_view path, const std::string& actual);

}  // namespace penstock
