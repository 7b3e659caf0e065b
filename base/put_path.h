// PutPath: how a path in a job names what was put to the cluster (`penstock data put`).
//
//   sha256:HEX         a file with this digest
//   sha256:HEX/        a directory, whose list of files has this digest (data/put_listing.h)
//   sha256:HEX/NAME    a file or a directory in it
//
// Plain values and functions.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

inline constexpr char kPutPrefix[] = "sha256:";

struct PutPath {
  std::string sha256;
  bool is_directory = false;  // the digest is that of a list
  std::string name = {};      // in the directory, without "/" at its end; empty: all of it

  // As a job writes it.
  std::string ToString() const;

  friend bool operator==(const PutPath&, const PutPath&) = default;
};

// Whether `path` begins as one does.
bool IsPutPath(absl::string_view path);
// Errors: InvalidArgument (the digest is none, or the name leads out of the directory), beginning with "is". REQUIRES: IsPutPath.
absl::StatusOr<PutPath> ParsePutPath(absl::string_view path);

// Whether `name` names something below a directory, and the same on any system: parts between single "/", none of which is
// "." or "..", in UTF-8 without control characters. Errors: InvalidArgument saying what is wrong, without the name.
absl::Status CheckNameBelow(absl::string_view name);

}  // namespace penstock
