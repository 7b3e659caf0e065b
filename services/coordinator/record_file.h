// RecordFile: a file of a job's step records, which grows at its end.
//
// It may have grown under an earlier job, whose checkpoint this one has resumed, or under an earlier process that died while
// it wrote. So steps that are about to be written are cut off first, and so is a torn end: each step then stands once.
//
// Thread-compatible. What it waits for is the disk.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file_tree.h"
#include "services/coordinator/directory_lock.h"

namespace penstock {

// How a file is read that is there already.
enum class RecordLayout : uint8_t {
  kJsonLines,    // {"step":12,...}
  kCsv,          // 12,...; the first line has the names of the columns
  kTensorboard,  // framed events
};

class RecordFile {
 public:
  // Opens the file, or makes one. Records of steps before `first_step` stay, up to the first other one.
  // Errors: those of `open` and of the disk; FailedPrecondition (another process writes there).
  static absl::StatusOr<RecordFile> Open(const std::string& path, RecordLayout layout,
                                         int64_t first_step, const LockFileOpener& open);

  // Writes to the end. After an error the same bytes may be given again: what is there of them is overwritten.
  absl::Status Append(absl::string_view bytes);
  // That stay, and were written.
  int64_t size_bytes() const { return size_bytes_; }

 private:
  RecordFile(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  // Both return how many bytes at the beginning stay: of lines, and of an event file.
  absl::StatusOr<int64_t> EndOfLines(RecordLayout layout, int64_t first_step) const;
  absl::StatusOr<int64_t> EndOfEvents(int64_t first_step) const;
  // Reads up to `size` bytes; fewer where the file ends.
  absl::StatusOr<absl::string_view> ReadAt(int64_t offset, size_t size, std::string& buffer) const;

  std::string path_;
  Descriptor file_;
  int64_t size_bytes_ = 0;
};

}  // namespace penstock
