// CheckpointKeeper: the coordinator's work on checkpoint directories, on a thread of its own,
// because committing reads back what was written.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "coordinator/effects.h"
#include "services/coordinator/directory_lock.h"
#include "services/coordinator/event_loop.h"
#include "services/rpc/task_pool.h"

namespace penstock {

// Clears up what dead attempts left under `query.root`, then calls FindStart (checkpoint/start.h).
// REQUIRES: no attempt is writing there.
absl::StatusOr<FoundStart> SweepAndFindStart(Files& files, const StartQuery& query);

// Makes `query.root` this process's own for as long as `lease` lives (directory_lock.h), creating it if need be, and
// then does as above. On a file system without locks the lease is null and a note says so.
// Errors also: FailedPrecondition (another process writes checkpoints there).
absl::StatusOr<FoundStart> ClaimAndFindStart(Files& files, const StartQuery& query,
                                             DirectoryLease& lease,
                                             const LockFileOpener& open = OpenLockFile);

// Thread safety: Perform from any thread.
class CheckpointKeeper {
 public:
  // REQUIRES: loop and files outlive the keeper.
  CheckpointKeeper(EventLoop& loop, Files& files, LockFileOpener open);

  void Perform(const FindCheckpoint& find);
  void Perform(const CommitStaged& commit);
  void Perform(const DiscardStaged& discard);

  // Checks whether a job of this spec could start now, as far as names tell (CheckStartNames). OK too if the disk does
  // not say so soon: then its start will tell. Waits, so not for the loop's thread. Errors: those of CheckStartNames.
  absl::Status LookAhead(const v1::CheckpointSpec& checkpoint);

 private:
  static constexpr int kTasksMax = 1024;

  EventLoop& loop_;
  Files& files_;
  const LockFileOpener open_;
  TaskPool tasks_;  // one thread, so one commit at a time
};

}  // namespace penstock
