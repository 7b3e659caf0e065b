// StoreWitness: a small file beside the state file that says how many changes are in it for good.
//
// SQLite drops the end of a damaged write-ahead log without a word and opens what was before. The store counts its
// changes in itself and here, so it notices if some are missing. The file has two places that are written in turn, so
// a write that a crash tears leaves the one before.
//
// Thread-compatible. Errors carry the path and the system's reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_tree.h"

namespace penstock {

class StoreWitness {
 public:
  // Returns the count; nothing if there is no such file. Errors also: DataLoss (neither place can be read).
  static absl::StatusOr<std::optional<int64_t>> Read(const std::string& path);

  // Makes a new file that says `count`, durably, whatever was there.
  static absl::StatusOr<StoreWitness> Create(const std::string& path, int64_t count);
  // Goes on with the file that is there.
  static absl::StatusOr<StoreWitness> Open(const std::string& path);

  // The count is on the disk when this returns. REQUIRES: it is one more than the last.
  absl::Status Write(int64_t count);

 private:
  StoreWitness(std::string path, Descriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  Descriptor file_;
};

}  // namespace penstock
