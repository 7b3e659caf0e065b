// Supervisor: the parent of the worker processes of a local cluster, and their certain end.
//
// It is a process of its own, forked from the command line before that has a second thread, and joined
// to it by a socket. It starts workers when asked and says when one ends. When the socket closes, for
// whatever reason (normal end, crash, SIGKILL of the command line), it kills the workers, waits for
// them, removes what they left unfinished on disk, and exits. So nothing outlives the command line.
//
// A single-threaded parent also makes PR_SET_PDEATHSIG exact (the signal follows the thread that
// forked), so the workers go with the supervisor too should that be killed itself.
//
//   penstock ── socket ── supervisor ─┬─ penstock-worker 0     stderr: memory file 0
//      │                              └─ penstock-worker 1     stderr: memory file 1
//      └── coordinator (threads of this process)
//
// The supervisor has its own session: Ctrl-C in a terminal reaches the command line alone, which then
// decides. Workers print to memory files without a name, so logs need no cleaning up either.
//
// Thread-compatible.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace penstock {

// A worker process that ended.
struct WorkerExit {
  int worker = 0;
  int wait_status = 0;  // as waitpid gives it

  std::string ToString() const;  // "exited with code 1", "was killed by signal 9 (Killed)"
};

class Supervisor {
 public:
  // REQUIRES: the process has one thread. Workers are numbered from 0 to `workers_max` - 1.
  // Errors: ResourceExhausted, Internal (the system refuses processes or files).
  static absl::StatusOr<std::unique_ptr<Supervisor>> Fork(int workers_max);
  // Stop() without grace.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts a worker process. `arguments[0]` is the program's path; "{parent-fd}" in an argument is
  // replaced by a descriptor whose end-of-file tells that the supervisor is gone. `environment`:
  // "NAME=value", added to this process's own.
  // Errors: NotFound, PermissionDenied (the program), Unavailable (the supervisor is gone).
  absl::StatusOr<pid_t> Spawn(int worker, const std::vector<std::string>& arguments,
                              const std::vector<std::string>& environment);

  // After the last worker has ended, unfinished checkpoints in `directory` will be removed, unless a
  // process holds it (services/coordinator/directory_lock.h).
  absl::Status SweepAtEnd(const std::string& directory);

  // After the last worker has ended, `directory` and all in it will be removed.
  absl::Status RemoveAtEnd(const std::string& directory);

  // The workers that ended since the last call, in order. Does not wait.
  // Errors: Unavailable (the supervisor is gone, and so are the workers).
  absl::StatusOr<std::vector<WorkerExit>> TakeExits();

  // The last lines a worker printed, at most `size_bytes_max`.
  std::string LogTail(int worker, int64_t size_bytes_max) const;

  // Ends the workers, with SIGTERM first if `grace` is positive, and the supervisor; returns when all
  // are gone and reaped. Idempotent.
  void Stop(absl::Duration grace);

 private:
  Supervisor(pid_t pid, int socket, std::vector<int> logs)
      : pid_(pid), socket_(socket), logs_(std::move(logs)) {}

  absl::Status Send(const std::vector<std::string>& fields);
  // The next message; worker exits that come first are put aside. Errors: DeadlineExceeded.
  absl::StatusOr<std::vector<std::string>> ReceiveReply(absl::Duration timeout);
  absl::StatusOr<std::vector<std::string>> Receive(absl::Duration timeout);

  pid_t pid_;
  int socket_;             // -1 once stopped
  std::vector<int> logs_;  // memory files, by worker
  std::deque<WorkerExit> exits_;
};

}  // namespace penstock
