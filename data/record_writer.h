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
  // `tensors`: of one record. Creates the directory. REQUIRES: `files` outlives the writer.
  // Errors: AlreadyExists (it has an index), those of `files`.
  static absl::StatusOr<std::unique_ptr<RecordWriter>> Create(Files& files, std::string directory,
                                                              std::vector<TensorType> tensors,
                                                              int64_t shard_bytes_max);

  // Appends a record. REQUIRES: `values` has one entry for each tensor, with its bytes. Errors: those of `files`.
  absl::Status Add(absl::Span<const absl::Span<const std::byte>> values);

  // Writes what is left and the index. Call once. Errors: InvalidArgument (there is no record), those of `files`.
  absl::StatusOr<RecordIndex> Finish();

 private:
  RecordWriter(Files& files, std::string directory, std::vector<TensorType> tensors,
               int64_t shard_bytes_max)
      : files_(files),
        directory_(std::move(directory)),
        shard_bytes_max_(shard_bytes_max),
        index_({.tensors = std::move(tensors)}),
        values_(index_.tensors.size()) {}
  absl::Status WriteShard();

  Files& files_;
  const std::string directory_;
  const int64_t shard_bytes_max_;
  RecordIndex index_;
  std::vector<std::string> values_;  // of the shard that is being filled, by tensor
  int64_t records_ = 0;              // of that shard
  int64_t bytes_ = 0;
};

}  // namespace penstock
