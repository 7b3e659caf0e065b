// The index of a records directory: sizes are within their limits, files are those of the directory, and what is read is
// printed and read as the same.
#include <string>

#include "data/record_index.h"
#include "tests/fuzz/fuzz_target.h"

PENSTOCK_FUZZ_TARGET(record_index) {
  using namespace penstock;
  const absl::StatusOr<RecordIndex> index = ParseRecordIndex(FuzzBytes(data, size).rest());
  if (!index.ok()) return 0;
  FuzzAccepted();
  PENSTOCK_CHECK(index->records() >= 1 && index->records() <= kRecordsMax);
  for (const TensorType& tensor : index->tensors) {
    PENSTOCK_CHECK(RecordBytes(tensor) >= 1 && RecordBytes(tensor) <= kRecordBytesMax);
  }
  for (const RecordShard& shard : index->shards) {
    PENSTOCK_CHECK(shard.file.find('/') == std::string::npos && shard.file != "..");
  }
  const std::string printed = PrintRecordIndex(*index);
  const absl::StatusOr<RecordIndex> again = ParseRecordIndex(printed);
  PENSTOCK_CHECK(again.ok() && PrintRecordIndex(*again) == printed);
  return 0;
}
