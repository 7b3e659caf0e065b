// The lines of a log, and what others wrote as it may stand in one.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace penstock {

// `text` with control characters and non-UTF-8 bytes replaced ("\n" by two letters), cut to some thousand bytes.
std::string OneLine(absl::string_view text);

// A line in the form that all programs log in: "2026-07-01T14:03:05.127Z I coordinator: text", with its end. The time is
// in UTC. `level`: T, D, I, W, E or C; `name`: who says it. `text` becomes one line.
std::string LogLine(absl::Time time, char level, absl::string_view name, absl::string_view text);

}  // namespace penstock
