// Files that are made with their mode, so that no other user reads a key before it is restricted.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Writes a new file, durably. Errors: AlreadyExists, those of the file system.
absl::Status WriteNewFile(const std::string& path, absl::string_view text, mode_t mode);

// Replaces the file there, at one moment.
absl::Status ReplaceFile(const std::string& path, absl::string_view text, mode_t mode);

}  // namespace penstock
