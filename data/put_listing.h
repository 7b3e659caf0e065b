// PutListing: a directory that was put to the cluster, as the list of its files. The list is a file by itself, and its digest
// names the directory (base/put_path.h):
//
//     {"format": "penstock-directory",
//      "files": [{"name": "train/index.json", "bytes": 512, "sha256": "..."}]}
//
// Files are in the order of their names, so that the same directory has the same digest wherever it is put. A reader trusts
// nothing: a name that leads out of the directory is refused.
//
// Plain values and functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/put_path.h"

namespace penstock {

inline constexpr int64_t kPutListingBytesMax = int64_t{32} << 20;
inline constexpr int64_t kPutFilesMax = 100'000;

struct PutEntry {
  std::string name;  // in the directory: "train/index.json"
  int64_t size_bytes = 0;
  std::string sha256;

  friend bool operator==(const PutEntry&, const PutEntry&) = default;
};

struct PutListing {
  std::vector<PutEntry> files;  // by name

  // Null if there is none.
  const PutEntry* Find(absl::string_view name) const;
  // The file `name`, or those below the directory of this name, or those that the last part of it is a pattern of; all for "".
  std::vector<const PutEntry*> At(absl::string_view name) const;
};

// Whether the last part of `name` has one of *, ? and [.
bool HasPattern(absl::string_view name);
// The name below `directory`, of which `name` is a file; that of a file that is `directory` itself, or fits it, is "". REQUIRES: PutListing::At found it.
std::string NameBelow(absl::string_view name, absl::string_view directory);

// Errors: InvalidArgument saying which file and which key is wrong.
absl::StatusOr<PutListing> ParsePutListing(absl::string_view text);
// REQUIRES: names are good, and in order.
std::string PrintPutListing(const PutListing& listing);

// Reads a whole file that was put, by its digest. Errors: NotFound, OutOfRange (it is larger than that), ...
using PutReadCall =
    std::function<absl::StatusOr<std::string>(const std::string& sha256, int64_t size_bytes_max)>;

// The list of a directory. REQUIRES: put.is_directory. Errors: those of `read`; InvalidArgument, which names the directory.
absl::StatusOr<PutListing> ReadPutListing(const PutReadCall& read, const PutPath& put);
// Of a name that is not in a directory: says what is.
absl::Status NotInPutDirectory(const PutPath& put, const PutListing& listing);

// What was put, by its path in a job.
class PutFiles final : public FileReader {
 public:
  explicit PutFiles(PutReadCall read) : read_(std::move(read)) {}

  // Errors: those of the call; InvalidArgument (no path of something put, or a list that is none), NotFound.
  absl::StatusOr<std::string> Read(const std::string& path, int64_t size_bytes_max) override;

 private:
  const PutReadCall read_;
};

}  // namespace penstock
