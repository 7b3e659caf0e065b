// A shard of a records directory: what is opened has the records that the index says, each within the file.
#include <string>
#include <vector>

#include "data/record_files.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/memory_files.h"

namespace penstock {
namespace {

constexpr int64_t kFuzzedRecords = 3;

RecordIndex FuzzedIndex() {
  RecordIndex index;
  index.tensors = {{.name = "label", .dtype = "I32", .shape = {2}}};
  index.sequences = {{.name = "source", .dtype = "I32"}};
  index.shards = {
      {.file = "0.safetensors", .records = kFuzzedRecords, .sha256 = std::string(64, '0')}};
  return index;
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(record_shard) {
  using namespace penstock;
  MemoryFiles files;
  const std::string index = PrintRecordIndex(FuzzedIndex());
  PENSTOCK_CHECK(files.CreateDirectories("records").ok());
  PENSTOCK_CHECK(files.WriteDurably("records/index.json", {index}).ok());
  PENSTOCK_CHECK(files.WriteDurably("records/0.safetensors", {FuzzBytes(data, size).rest()}).ok());
  // Contents are not compared with their digests: a large directory's are not, either.
  const absl::StatusOr<std::unique_ptr<RecordFiles>> opened =
      RecordFiles::Open(files, "records", {.sha256 = "", .checked_bytes_max = 0});
  if (!opened.ok()) return 0;
  FuzzAccepted();
  const RecordFiles& records = **opened;
  PENSTOCK_CHECK(records.records() == kFuzzedRecords);
  std::vector<std::byte> label(2 * sizeof(int32_t));
  for (int64_t record = 0; record < kFuzzedRecords; ++record) {
    PENSTOCK_CHECK(records.Read(0, record, absl::MakeSpan(label)).ok());
    const int64_t length = records.LengthOf(0, record);
    PENSTOCK_CHECK(length >= 0 && length <= static_cast<int64_t>(size));
    const size_t bytes = static_cast<size_t>(length) * sizeof(int32_t);
    std::vector<std::byte> values(bytes + 1);  // one more, so that there is memory for none
    PENSTOCK_CHECK(records.ReadSequence(0, record, absl::MakeSpan(values.data(), bytes)).ok());
  }
  return 0;
}
