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

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

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
  // Writes what waits. Returns when the disk has taken it.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Checks that lines can be written, which is better known at the start; waits for the disk. Errors: those of the file
  // system.
  absl::Status Check() ABSL_LOCKS_EXCLUDED(file_mutex_);

  // Writes the entry down and returns at once. Fields are cut to kFieldBytesMax.
  // Errors, to `done`: as above; ResourceExhausted (too many entries wait); DeadlineExceeded (the disk was too slow: the
  // entry may be written later all the same).
  void Record(const AuditEntry& entry, const CallInfo& call, absl::Time now, Done done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  static constexpr size_t kFieldBytesMax = 256;

 private:
  struct Entry {
    std::string line;
    Done done;  // null: it has heard already
    CondVar::Clock::time_point deadline;
  };

  void Write() ABSL_LOCKS_EXCLUDED(mutex_, file_mutex_);
  void Expire() ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes those out whose time is over. Entries are in the order of their deadlines.
  std::vector<Done> TakeLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns when the next one will be late; nothing if nobody waits.
  std::optional<CondVar::Clock::time_point> NextDeadline() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Makes sure that `file_` is the one at the path.
  absl::Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);
  absl::Status Append(const std::string& lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);

  const AuditLogOptions options_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Entry> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<Entry> writing_ ABSL_GUARDED_BY(mutex_);  // on their way to the disk
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Mutex file_mutex_;  // held while the disk is waited for
  std::optional<Descriptor> file_ ABSL_GUARDED_BY(file_mutex_);
  bool torn_ ABSL_GUARDED_BY(file_mutex_) = false;  // the last line lacks its end

  std::thread writer_;
  std::thread clerk_;  // tells those who are late
};

}  // namespace penstock
