// AuditLog: who asked for what: submissions and cancellations, granted or refused, a JSON object a line.
//
//   {"time":"2026-01-31T12:00:00.123Z","action":"submit","caller":"spiffe://penstock/client/ann",
//    "peer":"ipv4:10.0.0.7:50312","job_id":"gpt-7","outcome":"OK"}
//
// A line is on the disk before the caller hears the answer. The file is opened for each, so that tools may move
// it away.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/rpc/server_call.h"

namespace penstock {

struct AuditEntry {
  std::string action;  // "submit", "submit-profile", "cancel"
  std::string job_id;  // empty if there is none, as of a submission that was refused
  absl::Status outcome;
};

class AuditLog {
 public:
  explicit AuditLog(std::string path) : path_(std::move(path)) {}

  // Whether lines can be written, which is better known at the start. Errors: those of the file system.
  absl::Status Check() ABSL_LOCKS_EXCLUDED(mutex_);

  // Errors: as above; the call itself has been made by then.
  absl::Status Record(const AuditEntry& entry, const CallInfo& call, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status Append(absl::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  Mutex mutex_;
};

}  // namespace penstock
