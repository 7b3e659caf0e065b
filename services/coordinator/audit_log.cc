#include "services/coordinator/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"

namespace penstock {
namespace {

std::string CutText(absl::string_view text) { return CleanUtf8(text, AuditLog::kFieldBytesMax); }

std::string OutcomeOf(const AuditEntry& entry) {
  if (!entry.outcome.has_value()) return "requested";
  if (entry.outcome->ok()) return "OK";
  return CutText(absl::StrCat(absl::StatusCodeToString(entry.outcome->code()), ": ",
                              entry.outcome->message()));
}

// Returns whether the last write to the file ends in the middle of a line.
bool EndsTorn(int file) {
  struct stat info = {};
  char last = '\n';
  return fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
         pread(file, &last, 1, info.st_size - 1) == 1 && last != '\n';
}

}  // namespace

absl::Status AuditLog::Check() {
  MutexLock lock(mutex_);
  return Open();
}

absl::Status AuditLog::Record(const AuditEntry& entry, const CallInfo& call, absl::Time now) {
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone())},
      {"action", entry.action},
      {"caller", nullptr},
      {"peer", CutText(call.peer)},
      {"job_id", nullptr},
      {"outcome", OutcomeOf(entry)}};
  if (call.caller.has_value()) line["caller"] = CutText(call.caller->ToUri());
  if (!entry.job_id.empty()) line["job_id"] = CutText(entry.job_id);
  // This stays one line, whatever callers write into names.
  const std::string text =
      line.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
  MutexLock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(Open());
  return Append(absl::StrCat(text, "\n"));
}

absl::Status AuditLog::Open() {
  struct stat ours = {};
  struct stat there = {};
  if (file_.has_value() && stat(path_.c_str(), &there) == 0 && fstat(file_->get(), &ours) == 0 &&
      ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) {
    return absl::OkStatus();
  }
  Descriptor file(open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!file.ok()) return FileError("open", path_, errno);
  torn_ = EndsTorn(file.get());
  file_.emplace(std::move(file));
  return absl::OkStatus();
}

absl::Status AuditLog::Append(const std::string& line) {
  const std::string text = torn_ ? absl::StrCat("\n", line) : line;
  // One write keeps lines whole if a second process writes too.
  errno = ENOSPC;  // why a disk takes a part
  const ssize_t written = write(file_->get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) {
    torn_ = torn_ || written > 0;
    return FileError("write", path_, errno);
  }
  torn_ = false;
  return fsync(file_->get()) == 0 ? absl::OkStatus() : FileError("sync", path_, errno);
}

}  // namespace penstock
