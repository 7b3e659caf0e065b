// AuditLog: records who asked for what: submissions and cancellations, granted or refused, and workers refused because
// they speak another version of the protocol. A JSON object a line.
//
//   {"time":"2026-01-31T12:00:00.123Z","action":"submit","caller":"spiffe://penstock/client/ann",
//    "peer":"ipv4:10.0.0.7:50312","job_id":null,"outcome":"requested"}
//   {"time":"2026-01-31T12:00:00.127Z","action":"submit", ... "job_id":"gpt-7","outcome":"OK"}
//
// For a submission or cancellation, the first line is on the disk before anything is done, the second before the caller
// hears the answer, so every action is written down, also by a coordinator that died meanwhile. The file stays open,
// and is opened again when another one has its name, so that tools may move it away.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/file_tree.h"
#include "base/mutex.h"
#include "services/rpc/server_call.h"

namespace penstock {

struct AuditEntry {
  std::string action;  // "submit", "submit-profile", "cancel", "register"
  std::string job_id;  // empty if there is none, as of a submission that was refused
  std::optional<absl::Status> outcome;  // none: it was asked for
};

class AuditLog {
 public:
  explicit AuditLog(std::string path) : path_(std::move(path)) {}

  // Checks that lines can be written, which is better known at the start. Errors: those of the file system.
  absl::Status Check() ABSL_LOCKS_EXCLUDED(mutex_);

  // Fields are cut to kFieldBytesMax. Errors: as above.
  absl::Status Record(const AuditEntry& entry, const CallInfo& call, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);

  static constexpr size_t kFieldBytesMax = 256;

 private:
  // Makes sure that `file_` is the one at the path.
  absl::Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Append(const std::string& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  Mutex mutex_;
  std::optional<Descriptor> file_ ABSL_GUARDED_BY(mutex_);
  bool torn_ ABSL_GUARDED_BY(mutex_) = false;  // the last line lacks its end
};

}  // namespace penstock
