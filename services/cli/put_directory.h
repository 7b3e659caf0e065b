// What is put of a directory.
//
// Plain functions. They read the disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

// The names of the files below `directory`, sorted, without those that begin with a "." or lie in a directory that does. Links to files are
// followed, as the caches of others consist of them.
// Errors, which begin with the path: InvalidArgument (a link to a directory, something that is neither file nor directory, a
// name that cannot be put, too many files, none), NotFound (a link to nothing; a file that an index of records or of weights in
// there lists is not there), those of Files.
absl::StatusOr<std::vector<std::string>> FilesToPut(const std::string& directory);

// The bytes of each. Errors: those of Files.
absl::StatusOr<std::vector<int64_t>> SizesOf(const std::string& directory,
                                             const std::vector<std::string>& names);

}  // namespace penstock
