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
// A thread of its own writes, and brings all entries that wait to the disk at once, so that many callers cost one sync.
// Another one tells those whose entry has waited for too long: a disk that hangs holds up nobody else. How many entries
// wait is bounded.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/rpc/server_call.h"

namespace penstock {

struct AuditEntry {
  std::string action;  // "submit", "submit-profile", "cancel", "register"
  std::string job_id;  // empty if there is none, as of a submission that was refused
  std::optional<absl::Status> outcome;  // none: it was asked for
};

struct AuditLogOptions {
  std::string path;
  // How long a caller waits for the disk.
  absl::Duration timeout = absl::Seconds(5);
  // Entries that wait for the disk.
  size_t entries_max = 1024;
  // Brings a file to the disk, as fsync does. Runs on the writing thread.
  std::function<int(int file)> sync = fsync;
};

class AuditLog {
 public:
  // Hears once whether the entry is on the disk. On a thread of the log's, or on the one that records; must only enqueue.
  using Done = std::function<void(const absl::Status&)>;

  explicit AuditLog(AuditLogOptions options);
  // Writes what waits. Returns when the disk has taken it, at the latest kStopPatience after all have heard: a disk that
  // hangs is left with what it was given. REQUIRES: what `options.sync` uses lives on; it may be called even later then.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Checks that lines can be written, which is better known at the start; waits for the disk. Errors: those of the file
  // system.
  absl::Status Check();

  // Writes the entry down and returns at once. Fields are cut to kFieldBytesMax.
  // Errors, to `done`: as above; ResourceExhausted (too many entries wait); DeadlineExceeded (the disk was too slow: the
  // entry may be written later all the same).
  void Record(const AuditEntry& entry, const CallInfo& call, absl::Time now, Done done);

  static constexpr size_t kFieldBytesMax = 256;
  static constexpr std::chrono::seconds kStopPatience{1};

 private:
  class Parts;

  // What the threads use. It lives as long as they do, and so longer than the log if the disk hangs.
  const std::shared_ptr<Parts> parts_;
  std::thread writer_;
  std::thread clerk_;  // tells those who are late
};

}  // namespace penstock
