#include "services/coordinator/record_file.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "penstock/v1/tensorboard.pb.h"

namespace penstock {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// The step of a line. Nothing of one that none of the layouts has.
std::optional<int64_t> StepOf(absl::string_view line, RecordLayout layout) {
  if (layout == RecordLayout::kJsonLines && !absl::ConsumePrefix(&line, "{\"step\":")) return {};
  int64_t step = 0;
  return absl::SimpleAtoi(line.substr(0, line.find(',')), &step) ? std::optional(step)
                                                                 : std::nullopt;
}

}  // namespace

absl::StatusOr<RecordFile> RecordFile::Open(const std::string& path, RecordLayout layout,
                                            int64_t first_step, const LockFileOpener& open) {
  PENSTOCK_ASSIGN_OR_RETURN(Descriptor opened, open(path));
  RecordFile file(path, std::move(opened));
  // A file system without locks has other writers at its own risk.
  if (flock(file.file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is written by another process; name another directory"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(file.size_bytes_, layout == RecordLayout::kTensorboard
                                                  ? file.EndOfEvents(first_step)
                                                  : file.EndOfLines(layout, first_step));
  if (ftruncate(file.file_.get(), file.size_bytes_) != 0) return FileError("cut", path, errno);
  return file;
}

absl::StatusOr<absl::string_view> RecordFile::ReadAt(int64_t offset, size_t size,
                                                     std::string& buffer) const {
  buffer.resize(size);
  const ssize_t got = pread(file_.get(), buffer.data(), size, static_cast<off_t>(offset));
  if (got < 0) return FileError("read", path_, errno);
  return absl::string_view(buffer).substr(0, static_cast<size_t>(got));
}

absl::StatusOr<int64_t> RecordFile::EndOfLines(RecordLayout layout, int64_t first_step) const {
  int64_t end = 0;
  std::string buffer;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(absl::string_view left, ReadAt(end, kPieceBytes, buffer));
    const int64_t before = end;
    for (size_t newline; (newline = left.find('\n')) != absl::string_view::npos;) {
      const bool is_header = layout == RecordLayout::kCsv && end == 0;
      const std::optional<int64_t> step = StepOf(left.substr(0, newline), layout);
      if (!is_header && (!step.has_value() || *step >= first_step)) return end;
      end += static_cast<int64_t>(newline) + 1;
      left.remove_prefix(newline + 1);
    }
    if (end == before) return end;  // the end, or a line longer than any record
  }
}

absl::StatusOr<int64_t> RecordFile::EndOfEvents(int64_t first_step) const {
  constexpr size_t kHeadBytes = 12, kTailBytes = 4;  // services/documents/step_record_text.h
  int64_t end = 0;
  std::string buffer;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const absl::string_view head, ReadAt(end, kHeadBytes, buffer));
    if (head.size() < kHeadBytes) return end;
    uint64_t size = 0;
    for (size_t i = 8; i-- > 0;) size = size << 8 | static_cast<unsigned char>(head[i]);
    if (size > kPieceBytes) return end;
    PENSTOCK_ASSIGN_OR_RETURN(
        const absl::string_view body,
        ReadAt(end + static_cast<int64_t>(kHeadBytes), size + kTailBytes, buffer));
    v1::TensorboardEvent event;
    const bool whole = body.size() == size + kTailBytes &&
                       event.ParseFromArray(body.data(), static_cast<int>(size));
    if (!whole || (event.has_summary() && event.step() >= first_step)) return end;
    end += static_cast<int64_t>(kHeadBytes + size + kTailBytes);
  }
}

absl::Status RecordFile::Append(absl::string_view bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t got = pwrite(file_.get(), bytes.data() + written, bytes.size() - written,
                               size_bytes_ + static_cast<off_t>(written));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const absl::Status failed = FileError("write", path_, got < 0 ? errno : ENOSPC);
      // A reader finds whole records; the next try begins here anyway.
      (void)!ftruncate(file_.get(), size_bytes_);
      return failed;
    }
    written += static_cast<size_t>(got);
  }
  size_bytes_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

}  // namespace penstock
