#include "services/coordinator/checkpoint_keeper.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace penstock {

absl::StatusOr<FoundStart> SweepAndFindStart(Files& files, const StartQuery& query) {
  if (!query.root.empty()) {
    PENSTOCK_RETURN_IF_ERROR(SweepStaging(files, query.root));
  }
  return FindStart(files, query);
}

absl::StatusOr<FoundStart> ClaimAndFindStart(Files& files, const std::string& job_id,
                                             const StartQuery& query, DirectoryLease& lease,
                                             const LockFileOpener& open) {
  if (query.root.empty()) {
    return FindStart(files, query);
  }
  PENSTOCK_RETURN_IF_ERROR(Annotate(files.CreateDirectories(query.root), "checkpoint.directory"));
  absl::StatusOr<std::shared_ptr<DirectoryLock>> lock = DirectoryLock::Take(query.root, open);
  if (!lock.ok() && !absl::IsUnimplemented(lock.status())) {
    return lock.status();
  }
  if (lock.ok()) {
    PENSTOCK_ASSIGN_OR_RETURN(FoundStart start, SweepAndFindStart(files, query));
    lease = *std::move(lock);
    return start;
  }
  PENSTOCK_RETURN_IF_ERROR(SweepStagingOf(files, query.root, job_id));
  PENSTOCK_ASSIGN_OR_RETURN(FoundStart start, FindStart(files, query));
  start.notes.emplace_back(lock.status().message());
  return start;
}

CheckpointKeeper::CheckpointKeeper(EventLoop& loop, Files& files, LockFileOpener open,
                                   DiskNamer name_disk, absl::Duration held_patience)
    : parts_(std::make_shared<Parts>(loop, files, std::move(open))),
      held_patience_(held_patience),
      disks_(std::move(name_disk)) {
  MutexLock lock(parts_->mutex);
  parts_->disks = &disks_;
}

CheckpointKeeper::~CheckpointKeeper() {
  {
    MutexLock lock(parts_->mutex);
    parts_->disks = nullptr;
  }
  disks_.Stop(kStopPatience);
  MutexLock lock(parts_->mutex);
  parts_->loop = nullptr;
}

void CheckpointKeeper::Parts::Answer(const std::string& job_id, EffectAnswer answer) {
  MutexLock lock(mutex);
  if (loop == nullptr) return;
  // The run gets the only lease: when it goes, the directory is free for the next.
  loop->Post([job_id, answer = std::move(answer)](Coordinator& coordinator, Now now) mutable {
    coordinator.OnAnswer(job_id, std::move(answer), now);
  });
}

void CheckpointKeeper::Parts::Begin(const std::shared_ptr<Parts>& parts, const Search& search) {
  const StartQuery& query = search.find.query;
  absl::Status asked;
  {
    MutexLock lock(parts->mutex);
    if (parts->disks == nullptr) return;
    asked = parts->disks->Submit(query.root.empty() ? query.resume : query.root,
                                 [parts, search] { Run(parts, search); });
  }
  if (!asked.ok()) parts->Answer(search.find.job_id, StartFound{std::move(asked), nullptr});
}

void CheckpointKeeper::Parts::BeginLater(const std::shared_ptr<Parts>& parts,
                                         const Search& search) {
  MutexLock lock(parts->mutex);
  if (parts->loop == nullptr) return;
  parts->loop->PostAfter(kHeldRetryInterval,
                         [parts, search](Coordinator&, Now) { Begin(parts, search); });
}

void CheckpointKeeper::Parts::Run(const std::shared_ptr<Parts>& parts, const Search& search) {
  const FindCheckpoint& find = search.find;
  DirectoryLease lease;
  absl::StatusOr<FoundStart> found =
      absl::DeadlineExceededError("the disk was kept by other work for too long");
  if (CondVar::Clock::now() < search.until) {
    found = ClaimAndFindStart(parts->files, find.job_id, find.query, lease, parts->open);
  }
  if (IsHeldByAnother(found.status()) && CondVar::Clock::now() < search.held_until) {
    return BeginLater(parts, search);
  }
  parts->Answer(find.job_id, StartFound{std::move(found), std::move(lease)});
}

void CheckpointKeeper::Perform(const FindCheckpoint& find) {
  const auto now = CondVar::Clock::now();
  const auto until = now + std::chrono::milliseconds(find.limit_ms);
  Parts::Begin(parts_,
               {.find = find,
                .until = until,
                .held_until = std::min(until, now + absl::ToChronoNanoseconds(held_patience_))});
}

absl::Status CheckpointKeeper::LookAhead(const v1::CheckpointSpec& checkpoint) {
  constexpr std::chrono::seconds kPatience(1);
  struct Answer {
    Mutex mutex;
    CondVar changed;
    std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);
  };
  const bool has_directory = !checkpoint.directory().empty();
  if (!has_directory && checkpoint.resume().empty()) return absl::OkStatus();
  const auto answer = std::make_shared<Answer>();  // shared: nobody may wait for it any more
  const absl::Status asked =
      disks_.Submit(has_directory ? checkpoint.directory() : checkpoint.resume(),
                    [parts = parts_, checkpoint, answer] {
                      absl::Status status = CheckStartNames(parts->files, checkpoint.directory(),
                                                            checkpoint.resume());
                      MutexLock lock(answer->mutex);
                      answer->status = std::move(status);
                      answer->changed.NotifyAll();
                    });
  const auto deadline = CondVar::Clock::now() + kPatience;
  MutexLock lock(answer->mutex);
  while (asked.ok() && !answer->status && answer->changed.WaitUntil(answer->mutex, deadline)) {
  }
  return answer->status.value_or(absl::OkStatus());
}

void CheckpointKeeper::Perform(const CommitStaged& commit) {
  auto task = [parts = parts_, commit] {
    parts->Answer(commit.job_id, CheckpointCommitted{commit.manifest.step,
                                                     CommitCheckpoint(parts->files, commit.options,
                                                                      commit.manifest)});
  };
  if (absl::Status asked = disks_.Submit(commit.options.root, std::move(task)); !asked.ok()) {
    parts_->Answer(commit.job_id, CheckpointCommitted{commit.manifest.step, std::move(asked)});
  }
}

void CheckpointKeeper::Perform(const DiscardStaged& discard) {
  // What is left, a later checkpoint or the next start in the directory removes.
  disks_
      .Submit(discard.root,
              [parts = parts_, discard] {
                DiscardStaging(parts->files, discard.root, discard.tag, discard.step).IgnoreError();
              })
      .IgnoreError();
}

}  // namespace penstock
