// CheckpointKeeper: the coordinator's work on checkpoint directories, on a thread of its own,
// because committing reads back what was written.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "coordinator/effects.h"
#include "services/coordinator/event_loop.h"
#include "services/rpc/task_pool.h"

namespace penstock {

// Where a job starts. Clears up what dead attempts left under `find.root`.
//
// Errors: NotFound (resume names no checkpoint), DataLoss (there are some, but none is whole),
// InvalidArgument (it is of another model or data), FailedPrecondition (a new job must not write
// among the checkpoints of an older one).
absl::StatusOr<FoundStart> FindStart(Files& files, const FindCheckpoint& find);

// Thread safety: Perform from any thread.
class CheckpointKeeper {
 public:
  // REQUIRES: both outlive the keeper.
  CheckpointKeeper(EventLoop& loop, Files& files);

  void Perform(const FindCheckpoint& find);
  void Perform(const CommitStaged& commit);

 private:
  static constexpr int kTasksMax = 1024;

  EventLoop& loop_;
  Files& files_;
  TaskPool tasks_;  // one thread, so one commit at a time
};

}  // namespace penstock
