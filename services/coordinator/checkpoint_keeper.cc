#include "services/coordinator/checkpoint_keeper.h"

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace penstock {

namespace {

// Takes a step of a search that a job waits for until `until`. What ends later is given up, and its lease with it.
absl::StatusOr<FoundStart> InTime(CondVar::Clock::time_point until, DirectoryLease& lease,
                                  const std::function<absl::StatusOr<FoundStart>()>& step) {
  if (CondVar::Clock::now() < until) {
    absl::StatusOr<FoundStart> found = step();
    if (CondVar::Clock::now() < until) return found;
  }
  lease.reset();  // the job has ended, and the next one may want the directory
  return absl::DeadlineExceededError("the disk was kept for too long");
}

}  // namespace

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
                                   DiskNamer name_disk)
    : parts_(std::make_shared<Parts>(loop, files, std::move(open))), disks_(std::move(name_disk)) {}

CheckpointKeeper::~CheckpointKeeper() {
  disks_.Stop(kStopPatience);
  MutexLock lock(parts_->mutex);
  parts_->loop = nullptr;
}

void CheckpointKeeper::Parts::Answer(const std::string& job_id, EffectAnswer answer,
                                     std::shared_ptr<std::promise<void>> taken) {
  MutexLock lock(mutex);
  if (loop == nullptr) return;
  // The run gets the only lease: when it goes, the directory is free for the next.
  loop->Post([job_id, answer = std::move(answer), taken = std::move(taken)](
                 Coordinator& coordinator, Now now) mutable {
    coordinator.OnAnswer(job_id, std::move(answer), now);
    if (taken != nullptr) taken->set_value();
  });
}

void CheckpointKeeper::Parts::AnswerSearch(const std::string& job_id, StartFound found) {
  if (found.lease == nullptr) return Answer(job_id, std::move(found));
  auto taken = std::make_shared<std::promise<void>>();
  const std::future<void> arrival = taken->get_future();  // of the answer, or of its end
  Answer(job_id, std::move(found), std::move(taken));
  arrival.wait_for(kArrivalPatience);
}

void CheckpointKeeper::Perform(const FindCheckpoint& find) {
  const auto until = CondVar::Clock::now() + std::chrono::milliseconds(find.limit_ms);
  auto task = [parts = parts_, find, until] {
    DirectoryLease lease;
    absl::StatusOr<FoundStart> found = InTime(until, lease, [&] {
      return ClaimAndFindStart(parts->files, find.job_id, find.query, lease, parts->open);
    });
    parts->AnswerSearch(find.job_id, StartFound{std::move(found), std::move(lease)});
  };
  const std::string& directory = find.query.root.empty() ? find.query.resume : find.query.root;
  if (absl::Status asked = disks_.Submit(directory, std::move(task)); !asked.ok()) {
    parts_->Answer(find.job_id, StartFound{std::move(asked), nullptr});
  }
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
