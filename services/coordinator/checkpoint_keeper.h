// CheckpointKeeper: the coordinator's work on checkpoint directories, on a thread for each disk (disk_threads.h), because
// committing reads back what was written, and because a disk may hang.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/mutex.h"
#include "coordinator/effects.h"
#include "services/coordinator/directory_lock.h"
#include "services/coordinator/disk_threads.h"
#include "services/coordinator/event_loop.h"

namespace penstock {

// Makes `root` this process's own for as long as `lease` lives (directory_lock.h), creating it if need be, and clears up
// what dead attempts left there. On a file system without locks the lease is null, a note of `start` says so, and only
// what dead attempts at this job left is cleared up: those of others may live.
// REQUIRES: no attempt at this job is writing there.
// Errors: FailedPrecondition (another process writes checkpoints there), those of Files.
absl::Status Claim(Files& files, const std::string& job_id, const std::string& root,
                   const LockFileOpener& open, DirectoryLease& lease, FoundStart& start);

// Claims `query.root`, if there is one, and then calls FindStart (checkpoint/start.h). The lease is null if that fails.
// Errors: those of both.
absl::StatusOr<FoundStart> ClaimAndFindStart(Files& files, const std::string& job_id,
                                             const StartQuery& query, DirectoryLease& lease,
                                             const LockFileOpener& open = OpenLockFile);

// Thread safety: all methods from any thread.
class CheckpointKeeper {
 public:
  // REQUIRES: `loop` outlives the keeper, and so do `files` and what `open` uses; a thread that a disk keeps uses these two
  // even later, for as long as the process lives.
  CheckpointKeeper(EventLoop& loop, Files& files, LockFileOpener open,
                   DiskNamer name_disk = NameDisk);
  // Does what is asked for already, but waits no longer than kStopPatience: what then hangs is left (disk_threads.h), and
  // its answers are dropped.
  ~CheckpointKeeper();
  CheckpointKeeper(const CheckpointKeeper&) = delete;
  CheckpointKeeper& operator=(const CheckpointKeeper&) = delete;

  static constexpr std::chrono::seconds kStopPatience{5};
  static constexpr std::chrono::seconds kArrivalPatience{5};

  // A search that has waited for its disk for longer than its limit is not begun any more, and one that ends later than
  // that gives the directory up. The disk does nothing else until the job has its lease or, where it has ended, nobody:
  // the next search may be in the same directory.
  void Perform(const FindCheckpoint& find);
  void Perform(const CommitStaged& commit);
  void Perform(const DiscardStaged& discard);

  // Checks whether a job of this spec could start now, as far as names tell (CheckStartNames). OK too if a disk does
  // not say so soon: then its start will tell. Waits, so not for the loop's thread. Errors: those of CheckStartNames.
  absl::Status LookAhead(const v1::CheckpointSpec& checkpoint);

 private:
  // Reads the checkpoint that a job is to resume on the thread of its disk, and then claims the directory on that of its.
  absl::Status SubmitInTwoSteps(const FindCheckpoint& find, CondVar::Clock::time_point until);

  // What tasks use. It lives as long as they do, and so longer than the keeper if a disk hangs.
  struct Parts {
    Parts(EventLoop& loop, Files& files, LockFileOpener open, DiskThreads& disks)
        : files(files), open(std::move(open)), loop(&loop), disks(&disks) {}
    // Gives a job its answer, unless the keeper is gone. `taken` is set when it was taken, or goes.
    void Answer(const std::string& job_id, EffectAnswer answer,
                std::shared_ptr<std::promise<void>> taken = nullptr) ABSL_LOCKS_EXCLUDED(mutex);
    // Does so with what a search has found, and waits until a lease has arrived, kArrivalPatience at most.
    void AnswerSearch(const std::string& job_id, StartFound found);
    // For a task that another one follows. Errors: those of DiskThreads::Submit.
    absl::Status Submit(const std::string& directory, std::function<void()> task)
        ABSL_LOCKS_EXCLUDED(mutex);

    Files& files;
    const LockFileOpener open;
    Mutex mutex;
    EventLoop* loop ABSL_GUARDED_BY(mutex);     // null: the keeper is gone
    DiskThreads* disks ABSL_GUARDED_BY(mutex);  // null: it takes no more tasks
  };

  DiskThreads disks_;
  const std::shared_ptr<Parts> parts_;
};

}  // namespace penstock
