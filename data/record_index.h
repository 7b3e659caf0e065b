// RecordIndex: what the index.json of a records directory says.
//
//     {"format": "penstock-records",
//      "tensors": {"image": {"dtype": "U8", "shape": [28, 28, 1]}, "label": {"dtype": "I32", "shape": []}},
//      "sequences": {"source": {"dtype": "I32"}},
//      "shards": [{"file": "00000.safetensors", "records": 60000, "sha256": "..."}],
//      "files": [{"file": "vocabulary.model", "sha256": "..."}]}
//
// A shape is that of one record: in a shard the number of records stands before it. Of a sequence each record has as many
// values as it likes: a shard has the values of all its records one after the other, and in I64 `source.offsets`, [records
// + 1], where each record's begin and the last one's end. `files` are further ones that belong to the directory. There is
// a tensor or a sequence; `sequences` and `files` may be absent. Other keys are left alone. The reader trusts nothing:
// sizes, names and counts are bounded.
//
// Plain values and functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/safetensors.h"

namespace penstock {

inline constexpr char kRecordIndexFile[] = "index.json";
inline constexpr int64_t kRecordIndexBytesMax = int64_t{4} << 20;
inline constexpr int64_t kRecordTensorsMax = 64;  // sequences likewise
inline constexpr int64_t kRecordListedFilesMax = 64;
inline constexpr int64_t kRecordShardsMax = 4096;  // each is an open file
inline constexpr int64_t kRecordsMax = int64_t{1} << 40;
inline constexpr int64_t kRecordBytesMax = int64_t{1} << 30;  // of one tensor

struct RecordShard {
  std::string file;  // in the same directory
  int64_t records = 0;
  std::string sha256;  // of the file

  friend bool operator==(const RecordShard&, const RecordShard&) = default;
};

// Values of one type, of which records have different numbers.
struct SequenceType {
  std::string name;
  std::string dtype;

  friend bool operator==(const SequenceType&, const SequenceType&) = default;
};

struct ListedFile {
  std::string file;  // in the same directory
  std::string sha256;

  friend bool operator==(const ListedFile&, const ListedFile&) = default;
};

struct RecordIndex {
  std::vector<TensorType> tensors;      // of one record, by name
  std::vector<SequenceType> sequences;  // by name
  std::vector<RecordShard> shards;
  std::vector<ListedFile> files;

  int64_t records() const;
};

// The bytes of one record of a tensor.
int64_t RecordBytes(const TensorType& tensor);

// The tensor of a shard that says where each record of a sequence begins.
std::string OffsetsName(const SequenceType& sequence);
inline constexpr char kOffsetsDtype[] = "I64";

// Errors: InvalidArgument saying which key is wrong and what would do.
absl::StatusOr<RecordIndex> ParseRecordIndex(absl::string_view text);
std::string PrintRecordIndex(const RecordIndex& index);

}  // namespace penstock
