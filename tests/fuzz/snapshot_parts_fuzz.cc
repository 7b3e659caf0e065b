// Parts of snapshots, as peers send and fetch them, in any order and of any files.
//
// An input is calls, one to a line: "w JOB/SNAPSHOT/FILE SIZE OFFSET BYTES", "r PATH OFFSET BYTES_MAX", "k JOB SNAPSHOT" (what
// is before it may go) and "f JOB" (all may).
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "worker/snapshot_memory.h"

namespace penstock {
namespace {

constexpr int64_t kSnapshotBytesMax = 64;

int64_t NumberIn(absl::string_view word) {
  int64_t number = 0;
  return absl::SimpleAtoi(word, &number) ? number : -1;
}

// A file is whole with all the bytes that were taken of it, or it is not there.
void CheckFile(SnapshotMemory& memory, const std::string& path, int64_t size_bytes) {
  const absl::StatusOr<std::string> content = memory.Read(path, kSnapshotBytesMax);
  if (!content.ok()) return;
  PENSTOCK_CHECK(static_cast<int64_t>(content->size()) == size_bytes);
  PENSTOCK_CHECK(memory.SizeOf(path).value() == size_bytes);
  PENSTOCK_CHECK(memory.ReadPart(path, 0, size_bytes).value() == *content);
}

void Call(const std::vector<std::string>& words, SnapshotMemory& memory) {
  if (words[0] == "w" && words.size() == 5) {
    const int64_t size_bytes = NumberIn(words[2]);
    const absl::Status written =
        memory.WritePart(words[1], size_bytes, NumberIn(words[3]), words[4]);
    if (written.ok()) {
      FuzzAccepted();
      CheckFile(memory, words[1], size_bytes);
    }
  } else if (words[0] == "r" && words.size() == 4) {
    const int64_t bytes_max = NumberIn(words[3]);
    const absl::StatusOr<std::string> part =
        memory.ReadPart(words[1], NumberIn(words[2]), bytes_max);
    if (part.ok()) PENSTOCK_CHECK(static_cast<int64_t>(part->size()) <= bytes_max);
  } else if (words[0] == "k" && words.size() == 3) {
    memory.KeepFrom(words[1], words[1] + "/" + words[2]);
  } else if (words[0] == "f" && words.size() == 2) {
    memory.Forget(words[1]);
    for (const std::string& job : memory.Jobs()) PENSTOCK_CHECK(job != words[1]);
  }
}

}  // namespace

PENSTOCK_FUZZ_TARGET(snapshot_parts) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  SnapshotMemory memory(kSnapshotBytesMax);
  for (const absl::string_view line : absl::StrSplit(input, '\n')) {
    Call(absl::StrSplit(line, ' '), memory);
    PENSTOCK_CHECK(memory.bytes() >= 0 && memory.bytes() <= kSnapshotBytesMax);
  }
  for (const std::string& job : memory.Jobs()) memory.Forget(job);
  PENSTOCK_CHECK(memory.bytes() == 0);
  return 0;
}

}  // namespace penstock
