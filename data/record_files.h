// RecordFiles: the records of a directory (record_index.h), read one at a time from where they lie.
//
// Opening reads the index and the shards' headers, so a directory may be larger than memory. A shard whose header says
// other things than the index is refused at once; one whose values were changed since shows in its SHA-256, which
// opening checks as long as the shards together are not too large to be read.
//
// Thread safety: immutable once open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "data/record_index.h"

namespace penstock {

struct RecordFilesOptions {
  std::string sha256;  // of index.json; empty accepts any
  // The content of all shards is checked if they have no more bytes than this together.
  int64_t checked_bytes_max = 0;
  // Called now and then while contents are checked; its error ends the opening. May be empty.
  std::function<absl::Status(int64_t done_bytes, int64_t all_bytes)> progress;
};

class RecordFiles {
 public:
  // Errors: NotFound, PermissionDenied, InvalidArgument (the index), DataLoss (another index than `sha256`, or a shard
  // that is not what the index says), ResourceExhausted (too many open files), that of `progress`.
  static absl::StatusOr<std::unique_ptr<RecordFiles>> Open(Files& files,
                                                           const std::string& directory,
                                                           const RecordFilesOptions& options);

  const std::string& directory() const { return directory_; }
  const RecordIndex& index() const { return index_; }
  const std::string& sha256() const { return sha256_; }  // of index.json
  int64_t records() const { return starts_.back(); }
  int64_t size_bytes() const;  // of all shards

  // The number of the tensor called `name`, or -1.
  int FindTensor(absl::string_view name) const;

  // Fills `values` with one record of a tensor. REQUIRES: there is such a record, and `values` has its bytes.
  // Errors: those of the disk; DataLoss if the file was cut short.
  absl::Status Read(int tensor, int64_t record, absl::Span<std::byte> values) const;

 private:
  struct Shard {
    std::unique_ptr<RandomAccessFile> file;
    std::vector<int64_t> offsets;  // by tensor
  };

  explicit RecordFiles(std::string directory) : directory_(std::move(directory)) {}
  absl::Status OpenShard(Files& files, const RecordShard& listed);
  absl::Status CheckContents(const RecordFilesOptions& options) const;

  const std::string directory_;
  RecordIndex index_;
  std::string sha256_;
  std::vector<Shard> shards_;
  std::vector<int64_t> starts_ = {0};  // first record of each shard, and the end
};

}  // namespace penstock
