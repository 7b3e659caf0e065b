// RecordFiles: the records of a directory (record_index.h), read one at a time from where they lie.
//
// Opening reads the index and the shards' headers, so a directory may be larger than memory. A shard whose header says
// other things than the index is refused at once; one whose values were changed since shows in its SHA-256, which
// opening checks as long as the shards together are not too large to be read. Where the records of a sequence begin is
// read and checked at opening and held in memory, eight bytes for each record.
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
  // The content of all shards and listed files is checked if the shards have no more bytes than this together.
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

  // The number of the tensor or the sequence called `name`, or -1.
  int FindTensor(absl::string_view name) const;
  int FindSequence(absl::string_view name) const;

  // Fills `values` with one record of a tensor. REQUIRES: there is such a record, and `values` has its bytes.
  // Errors: those of the disk; DataLoss if the file was cut short.
  absl::Status Read(int tensor, int64_t record, absl::Span<std::byte> values) const;

  // The values that one record of a sequence has. REQUIRES: there is such a record.
  int64_t LengthOf(int sequence, int64_t record) const;
  // Fills `values` with them. REQUIRES: `values` has their bytes. Errors: as Read.
  absl::Status ReadSequence(int sequence, int64_t record, absl::Span<std::byte> values) const;

  // The content of a file that the index lists. Errors: NotFound (it lists none of that name), DataLoss (another
  // content), those of `files`.
  absl::StatusOr<std::string> ReadListedFile(Files& files, absl::string_view name,
                                             int64_t size_bytes_max) const;

 private:
  struct Shard {
    std::unique_ptr<RandomAccessFile> file;
    std::vector<int64_t> offsets;           // by tensor
    std::vector<int64_t> sequence_offsets;  // by sequence: of its values
    // By sequence: where each record's values begin, and the end.
    std::vector<std::vector<int64_t>> record_offsets;
  };
  struct ShardPlace {
    const Shard* shard;
    int64_t record;  // in it
  };

  explicit RecordFiles(std::string directory) : directory_(std::move(directory)) {}
  absl::Status OpenShard(Files& files, const RecordShard& listed);
  absl::Status CheckContents(Files& files, const RecordFilesOptions& options) const;
  // REQUIRES: there is such a record.
  ShardPlace PlaceOf(int64_t record) const;

  const std::string directory_;
  RecordIndex index_;
  std::string sha256_;
  std::vector<Shard> shards_;
  std::vector<int64_t> starts_ = {0};  // first record of each shard, and the end
};

}  // namespace penstock
