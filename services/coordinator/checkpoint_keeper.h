// CheckpointKeeper: the coordinator's work on checkpoint directories, on a thread for each disk (disk_threads.h), because
// committing reads back what was written, and because a disk may hang.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
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

// Makes `root` this process's own for as long as `lease` lives (directory_lock.h), creating it if need be, and clears up
// what dead attempts left there. On a file system without locks the lease is null, a note of `start` says so, and only
// what dead attempts at this job left is cleared up: those of others may live.
// REQUIRES: no attempt at this job but `find.adopted_tag` is writing there.
// Errors: FailedPrecondition (another process writes checkpoints there), those of Files.
absl::Status Claim(Files& files, const FindCheckpoint& find, const LockFileOpener& open,
                   DirectoryLease& lease, FoundStart& start);

// Claims the directory of `find`, if there is one, and then calls FindStart (checkpoint/start.h) unless an attempt is
// adopted there. The lease is null if that fails. Errors: those of both.
absl::StatusOr<FoundStart> ClaimAndFindStart(Files& files, const FindCheckpoint& find,
                                             DirectoryLease& lease,
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
  static constexpr std::chrono::seconds kArrivalPatience{5};
  // Between attempts at a directory that is held.
  static constexpr absl::Duration kHeldRetryInterval = absl::Milliseconds(500);

  // A search that has waited for its disk for longer than its limit is not begun any more, and one that ends later than
  // that gives the directory up. The disk does nothing else until the job has its lease or, where it has ended, nobody:
  // the next search may be in the same directory.
  void Perform(const FindCheckpoint& find);
  void Perform(const CommitStaged& commit);
  void Perform(const DiscardStaged& discard);

  // Checks whether a job of this spec could start now, as far as names tell (CheckStartNames). OK too if a disk does
  // not say so soon: then its start will tell. Waits, so not for the loop's thread. Errors: those of CheckStartNames.
  absl::Status LookAhead(const v1::CheckpointSpec& checkpoint);

  // Puts the family in the place of a directory of Hugging Face's, if `model` names one (job/hugging_face/read_config.h).
  // Waits likewise. Errors: those of ReadHuggingFaceConfig; InvalidArgument (a relative directory), Unavailable (the disk
  // does not answer soon).
  absl::Status ReadModel(v1::ModelSpec& model);

  // Does `task` on the thread of the disk of `directory`, and waits likewise. It may go on later, so all that it uses lives as long as
  // it. Errors: those of `task`; Unavailable (the disk does not answer soon), which names `what`.
  absl::Status DoOnDisk(const std::string& directory, const std::string& what,
                        std::function<absl::Status()> task);

 private:
  // A search for where a job starts, on its way over the disks.
  struct Search {
    FindCheckpoint find;
    CondVar::Clock::time_point until;       // the job waits no longer
    CondVar::Clock::time_point held_until;  // nor is a directory that is held tried again later
    std::optional<FoundStart> start =
        std::nullopt;  // read already: then the directory is left to claim
  };

  // What tasks use. It lives as long as they do, and so longer than the keeper if a disk hangs.
  struct Parts : std::enable_shared_from_this<Parts> {
    Parts(EventLoop& loop, Files& files, LockFileOpener open, DiskThreads& disks)
        : files(files), open(std::move(open)), loop(&loop), disks(&disks) {}
    // Takes the search's next step on the thread of its disk: a checkpoint that the job names is read on the thread of that
    // disk first, and then the directory claimed on that of its own.
    void GoOn(const Search& search) ABSL_LOCKS_EXCLUDED(mutex);
    void GoOnLater(const Search& search) ABSL_LOCKS_EXCLUDED(mutex);
    // The two steps, on the thread of a disk.
    void ReadStart(Search search) ABSL_LOCKS_EXCLUDED(mutex);
    void ClaimStart(const Search& search) ABSL_LOCKS_EXCLUDED(mutex);
    // Gives a job its answer, unless the keeper is gone. `taken` is set when it was taken, or goes.
    void Answer(const std::string& job_id, EffectAnswer answer,
                std::shared_ptr<std::promise<void>> taken = nullptr) ABSL_LOCKS_EXCLUDED(mutex);
    // Does so with what a search has found, and waits until a lease has arrived, kArrivalPatience at most.
    void AnswerSearch(const std::string& job_id, StartFound found) ABSL_LOCKS_EXCLUDED(mutex);
    // Errors: those of DiskThreads::Submit.
    absl::Status Submit(const std::string& directory, std::function<void()> task)
        ABSL_LOCKS_EXCLUDED(mutex);

    Files& files;
    const LockFileOpener open;
    Mutex mutex;
    EventLoop* loop ABSL_GUARDED_BY(mutex);     // null: the keeper is gone
    DiskThreads* disks ABSL_GUARDED_BY(mutex);  // null: it takes no more tasks
  };

  const absl::Duration held_patience_;
  DiskThreads disks_;
  const std::shared_ptr<Parts> parts_;
};

}  // namespace penstock
