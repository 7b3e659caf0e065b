#include "services/coordinator/checkpoint_keeper.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace penstock {

absl::StatusOr<FoundStart> SweepAndFindStart(Files& files, const StartQuery& query) {
  if (!query.root.empty()) {
    PENSTOCK_RETURN_IF_ERROR(SweepStaging(files, query.root));
  }
  return FindStart(files, query);
}

absl::StatusOr<FoundStart> ClaimAndFindStart(Files& files, const StartQuery& query,
                                             DirectoryLease& lease, const LockFileOpener& open) {
  if (query.root.empty()) {
    return FindStart(files, query);
  }
  PENSTOCK_RETURN_IF_ERROR(Annotate(files.CreateDirectories(query.root), "checkpoint.directory"));
  absl::StatusOr<std::shared_ptr<DirectoryLock>> lock = DirectoryLock::Take(query.root, open);
  if (!lock.ok() && !absl::IsUnimplemented(lock.status())) {
    return lock.status();
  }
  PENSTOCK_ASSIGN_OR_RETURN(FoundStart start, SweepAndFindStart(files, query));
  if (lock.ok()) {
    lease = *std::move(lock);
  } else {
    start.notes.emplace_back(lock.status().message());
  }
  return start;
}

CheckpointKeeper::CheckpointKeeper(EventLoop& loop, Files& files, LockFileOpener open)
    : loop_(loop),
      files_(files),
      open_(std::move(open)),
      tasks_(/*threads=*/1, kTasksMax, "checkpoints") {}

void CheckpointKeeper::Perform(const FindCheckpoint& find) {
  const auto answer = [this, job_id = find.job_id](absl::StatusOr<FoundStart> found,
                                                   DirectoryLease lease) {
    // The run gets the only lease: when it goes, the directory is free for the next.
    loop_.Post([job_id, answer = StartFound{std::move(found), std::move(lease)}](
                   Coordinator& coordinator, Now now) mutable {
      coordinator.OnAnswer(job_id, std::move(answer), now);
    });
  };
  const auto task = [this, find, answer] {
    DirectoryLease lease;
    absl::StatusOr<FoundStart> found = ClaimAndFindStart(files_, find.query, lease, open_);
    answer(std::move(found), std::move(lease));
  };
  if (!tasks_.Submit(task)) {
    answer(absl::ResourceExhaustedError("too much work on checkpoints waits"), nullptr);
  }
}

absl::Status CheckpointKeeper::LookAhead(const v1::CheckpointSpec& checkpoint) {
  constexpr std::chrono::seconds kPatience(1);
  struct Answer {
    Mutex mutex;
    CondVar changed;
    std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);
  };
  if (checkpoint.directory().empty() && checkpoint.resume().empty()) return absl::OkStatus();
  const auto answer = std::make_shared<Answer>();  // shared: nobody may wait for it any more
  const bool asked = tasks_.Submit([this, checkpoint, answer] {
    absl::Status status = CheckStartNames(files_, checkpoint.directory(), checkpoint.resume());
    MutexLock lock(answer->mutex);
    answer->status = std::move(status);
    answer->changed.NotifyAll();
  });
  const auto deadline = CondVar::Clock::now() + kPatience;
  MutexLock lock(answer->mutex);
  while (asked && !answer->status && answer->changed.WaitUntil(answer->mutex, deadline)) {
  }
  return answer->status.value_or(absl::OkStatus());
}

void CheckpointKeeper::Perform(const CommitStaged& commit) {
  const auto answer = [this, job_id = commit.job_id,
                       step = commit.manifest.step](absl::StatusOr<CommittedCheckpoint> committed) {
    loop_.Post(
        [job_id, answer = CheckpointCommitted{step, std::move(committed)}](
            Coordinator& coordinator, Now now) { coordinator.OnAnswer(job_id, answer, now); });
  };
  if (!tasks_.Submit([this, commit, answer] {
        answer(CommitCheckpoint(files_, commit.options, commit.manifest));
      })) {
    answer(absl::ResourceExhaustedError("too much work on checkpoints waits"));
  }
}

void CheckpointKeeper::Perform(const DiscardStaged& discard) {
  // What is left now, the next start in the directory removes.
  (void)tasks_.Submit([this, discard] {
    DiscardStaging(files_, discard.root, discard.tag, discard.step).IgnoreError();
  });
}

}  // namespace penstock
