// Results that `penstock train --json` printed, side by side.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

// A table with a row for each file. Errors: InvalidArgument (no such result), those of the file system.
absl::StatusOr<std::string> CompareResultFiles(const std::vector<std::string>& paths);

}  // namespace penstock
