// CheckpointKeeper: the coordinator's work on checkpoint directories, on a thread for each disk (disk_threads.h), because
// committing reads back what was written, and because a disk may hang.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files.h"
#include "base/mutex.h"
#include "coordinator/effects.h"
#include "services/coordinator/directory_lock.h"
#include "services/coordinator/disk_threads.h"
#include "services/coordinator/event_loop.h"

namespace penstock {

// Clears up what dead attempts left under `query.root`, then calls FindStart (checkpoint/start.h).
// REQUIRES: no attempt is writing there.
absl::StatusOr<FoundStart> SweepAndFindStart(Files& files, const StartQuery& query);

// Makes `query.root` this process's own for as long as `lease` lives (directory_lock.h), creating it if need be, and
// then does as above. On a file system without locks the lease is null, a note says so, and only what dead attempts at
// this job left is cleared up: those of others may live.
// Errors also: FailedPrecondition (another process writes checkpoints there).
absl::StatusOr<FoundStart> ClaimAndFindStart(Files& files, const std::string& job_id,
                                             const StartQuery& query, DirectoryLease& lease,
                                             const LockFileOpener& open = OpenLockFile);

// Thread safety: all methods from any thread.
class CheckpointKeeper {
 public:
  // REQUIRES: `loop` outlives the keeper, and so do `files` and what `open` uses; a thread that a disk keeps uses these two
  // even later, for as long as the process lives.
  // `held_patience`: how long a search waits, within its limit, for a directory that another process holds: for a coordinator
  // that led before and is about to let it go, or whose lock a file server has yet to drop.
  CheckpointKeeper(EventLoop& loop, Files& files, LockFileOpener open,
                   DiskNamer name_disk = NameDisk,
                   absl::Duration held_patience = absl::ZeroDuration());
  // Does what is asked for already, but waits no longer than kStopPatience: what then hangs is left (disk_threads.h), and
  // its answers are dropped.
  ~CheckpointKeeper();
  CheckpointKeeper(const CheckpointKeeper&) = delete;
  CheckpointKeeper& operator=(const CheckpointKeeper&) = delete;

  static constexpr std::chrono::seconds kStopPatience{5};
  // Between attempts at a directory that is held.
  static constexpr absl::Duration kHeldRetryInterval = absl::Milliseconds(500);

  // A search that has waited for its disk for longer than its limit is not begun any more.
  void Perform(const FindCheckpoint& find);
  void Perform(const CommitStaged& commit);
  void Perform(const DiscardStaged& discard);

  // Checks whether a job of this spec could start now, as far as names tell (CheckStartNames). OK too if the disk does
  // not say so soon: then its start will tell. Waits, so not for the loop's thread. Errors: those of CheckStartNames.
  absl::Status LookAhead(const v1::CheckpointSpec& checkpoint);

 private:
  struct Search {
    FindCheckpoint find;
    CondVar::Clock::time_point until;       // not begun later
    CondVar::Clock::time_point held_until;  // nor is a directory that is held tried again later
  };

  // What tasks use. It lives as long as they do, and so longer than the keeper if a disk hangs.
  struct Parts {
    Parts(EventLoop& loop, Files& files, LockFileOpener open)
        : files(files), open(std::move(open)), loop(&loop) {}
    // Searches on the disk's thread, now or, for a directory that is held, later.
    static void Begin(const std::shared_ptr<Parts>& parts, const Search& search)
        ABSL_LOCKS_EXCLUDED(parts->mutex);
    static void BeginLater(const std::shared_ptr<Parts>& parts, const Search& search)
        ABSL_LOCKS_EXCLUDED(parts->mutex);
    static void Run(const std::shared_ptr<Parts>& parts, const Search& search);
    // Gives a job its answer, unless the keeper is gone.
    void Answer(const std::string& job_id, EffectAnswer answer) ABSL_LOCKS_EXCLUDED(mutex);

    Files& files;
    const LockFileOpener open;
    Mutex mutex;
    EventLoop* loop ABSL_GUARDED_BY(mutex);               // null: the keeper is gone
    DiskThreads* disks ABSL_GUARDED_BY(mutex) = nullptr;  // null: it is going, or gone
  };

  const std::shared_ptr<Parts> parts_;
  const absl::Duration held_patience_;
  DiskThreads disks_;
};

}  // namespace penstock
