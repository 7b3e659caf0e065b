#include "services/coordinator/audit_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_tree.h"

namespace penstock {

absl::Status AuditLog::Check() {
  MutexLock lock(mutex_);
  return Append("");
}

absl::Status AuditLog::Record(const AuditEntry& entry, const CallInfo& call, absl::Time now) {
  const std::string outcome = entry.outcome.ok()
                                  ? "OK"
                                  : absl::StrCat(absl::StatusCodeToString(entry.outcome.code()),
                                                 ": ", entry.outcome.message());
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone())},
      {"action", entry.action},
      {"caller", nullptr},
      {"peer", call.peer},
      {"job_id", nullptr},
      {"outcome", outcome}};
  if (call.caller.has_value()) line["caller"] = call.caller->ToUri();
  if (!entry.job_id.empty()) line["job_id"] = entry.job_id;
  // One line, whatever callers write into names.
  const std::string text =
      line.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
  MutexLock lock(mutex_);
  return Append(absl::StrCat(text, "\n"));
}

absl::Status AuditLog::Append(absl::string_view line) {
  const Descriptor file(open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!file.ok()) return FileError("open", path_, errno);
  if (line.empty()) return absl::OkStatus();
  // One write, so that lines stay whole beside a second process.
  if (write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
      fsync(file.get()) != 0) {
    return FileError("write", path_, errno);
  }
  return absl::OkStatus();
}

}  // namespace penstock
