// RecordWriter: writes a records directory (record_index.h), record by record.
//
// A shard is held in memory until it is full. The index is written last, so a directory without one is one whose writing
// was interrupted.
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "data/record_index.h"

namespace penstock {

class RecordWriter {
 public:
  // `tensors`, `sequences`: of one record. Creates the directory. REQUIRES: `files` outlives the writer.
  // Errors: AlreadyExists (it has an index), those of `files`.
  static absl::StatusOr<std::unique_ptr<RecordWriter>> Create(
      Files& files, std::string directory, std::vector<TensorType> tensors, int64_t shard_bytes_max,
      std::vector<SequenceType> sequences = {});

  // Appends a record. REQUIRES: `values` has one entry for each tensor, with its bytes, then one for each sequence, with
  // whole values. Errors: InvalidArgument (a sequence without a value in a whole shard), those of `files`.
  absl::Status Add(absl::Span<const absl::Span<const std::byte>> values);

  // Writes a further file, which the index will list. REQUIRES: no file of the directory has this name.
  // Errors: those of `files`.
  absl::Status AddFile(const std::string& name, absl::string_view content);

  // Writes what is left and the index. Call once. Errors: InvalidArgument (there is no record), those of Add.
  absl::StatusOr<RecordIndex> Finish();

 private:
  RecordWriter(Files& files, std::string directory, int64_t shard_bytes_max, RecordIndex index)
      : files_(files),
        directory_(std::move(directory)),
        shard_bytes_max_(shard_bytes_max),
        index_(std::move(index)),
        values_(index_.tensors.size() + index_.sequences.size()),
        record_offsets_(index_.sequences.size(), {0}) {}
  absl::Status WriteShard();

  Files& files_;
  const std::string directory_;
  const int64_t shard_bytes_max_;
  RecordIndex index_;
  // Of the shard that is being filled:
  std::vector<std::string> values_;                   // by tensor, then by sequence
  std::vector<std::vector<int64_t>> record_offsets_;  // by sequence
  int64_t records_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace penstock
