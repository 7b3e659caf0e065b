#include "services/coordinator/checkpoint_keeper.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/start.h"
#include "job/hugging_face/read_config.h"

namespace penstock {

namespace {

constexpr std::chrono::seconds kLookPatience(1);

// What a disk is asked, and its answer once it has come. Shared: nobody may wait for it any more.
struct DiskAnswer {
  Mutex mutex;
  CondVar changed;
  std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);

  void Give(absl::Status given) {
    MutexLock lock(mutex);
    status = std::move(given);
    changed.NotifyAll();
  }
  std::optional<absl::Status> WaitUntil(CondVar::Clock::time_point deadline) {
    MutexLock lock(mutex);
    while (!status && changed.WaitUntil(mutex, deadline)) {
    }
    return status;
  }
};

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

absl::Status Claim(Files& files, const FindCheckpoint& find, const LockFileOpener& open,
                   DirectoryLease& lease, FoundStart& start) {
  PENSTOCK_FAULT_POINT_STATUS(kKeeperBeforeClaim);
  const std::string& root = find.query.root;
  PENSTOCK_RETURN_IF_ERROR(Annotate(files.CreateDirectories(root), "checkpoint.directory"));
  absl::StatusOr<std::shared_ptr<DirectoryLock>> lock = DirectoryLock::Take(root, open);
  if (absl::IsUnimplemented(lock.status())) {
    start.notes.emplace_back(lock.status().message());
    return SweepStagingOf(files, root, find.job_id, find.adopted_tag);
  }
  PENSTOCK_RETURN_IF_ERROR(lock.status());
  PENSTOCK_RETURN_IF_ERROR(SweepStaging(files, root, find.adopted_tag));
  lease = *std::move(lock);
  PENSTOCK_FAULT_POINT(kKeeperAfterClaim);
  return absl::OkStatus();
}

absl::StatusOr<FoundStart> ClaimAndFindStart(Files& files, const FindCheckpoint& find,
                                             DirectoryLease& lease, const LockFileOpener& open) {
  FoundStart claimed;
  if (!find.query.root.empty()) {
    PENSTOCK_RETURN_IF_ERROR(Claim(files, find, open, lease, claimed));
  }
  if (!find.adopted_tag.empty()) return claimed;
  absl::StatusOr<FoundStart> start = FindStart(files, find.query);
  if (!start.ok()) {
    lease.reset();
    return start;
  }
  start->notes.insert(start->notes.end(), claimed.notes.begin(), claimed.notes.end());
  return start;
}

CheckpointKeeper::CheckpointKeeper(EventLoop& loop, Files& files, LockFileOpener open,
                                   DiskNamer name_disk, absl::Duration held_patience)
    : held_patience_(held_patience),
      disks_(std::move(name_disk)),
      parts_(std::make_shared<Parts>(loop, files, std::move(open), disks_)) {}

CheckpointKeeper::~CheckpointKeeper() {
  {
    MutexLock lock(parts_->mutex);
    parts_->disks = nullptr;
  }
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

absl::Status CheckpointKeeper::Parts::Submit(const std::string& directory,
                                             std::function<void()> task) {
  MutexLock lock(mutex);
  if (disks == nullptr) return absl::UnavailableError("the coordinator is shutting down");
  return disks->Submit(directory, std::move(task));
}

void CheckpointKeeper::Parts::GoOn(const Search& search) {
  const auto& [root, resume] = std::tie(search.find.query.root, search.find.query.resume);
  const bool reads_first = !search.start.has_value() && !root.empty() && NamesCheckpoint(resume);
  absl::Status asked = Submit(reads_first || root.empty() ? resume : root,
                              [parts = shared_from_this(), search, reads_first] {
                                if (reads_first) {
                                  parts->ReadStart(search);
                                } else {
                                  parts->ClaimStart(search);
                                }
                              });
  if (!asked.ok()) {
    Answer(search.find.job_id,
           StartFound{std::move(asked), nullptr, !search.find.adopted_tag.empty()});
  }
}

void CheckpointKeeper::Parts::ReadStart(Search search) {
  DirectoryLease none;
  absl::StatusOr<FoundStart> found = InTime(search.until, none, [&] {
    StartQuery query = search.find.query;
    query.root.clear();
    return FindStart(files, query);
  });
  if (!found.ok()) return Answer(search.find.job_id, StartFound{std::move(found), nullptr});
  search.start = *std::move(found);
  GoOn(search);
}

void CheckpointKeeper::Parts::ClaimStart(const Search& search) {
  const FindCheckpoint& find = search.find;
  DirectoryLease lease;
  absl::StatusOr<FoundStart> found =
      InTime(search.until, lease, [&]() -> absl::StatusOr<FoundStart> {
        if (!search.start.has_value()) {
          return ClaimAndFindStart(files, find, lease, open);
        }
        FoundStart start = *search.start;
        PENSTOCK_RETURN_IF_ERROR(Claim(files, find, open, lease, start));
        return start;
      });
  if (IsHeldByAnother(found.status())) {
    if (CondVar::Clock::now() < search.held_until) return GoOnLater(search);
    // A job that goes on looks again for a while: it may be a leader that is frozen, and will be ended.
    found = absl::UnavailableError(found.status().message());
  }
  AnswerSearch(find.job_id,
               StartFound{std::move(found), std::move(lease), !find.adopted_tag.empty()});
}

void CheckpointKeeper::Parts::GoOnLater(const Search& search) {
  MutexLock lock(mutex);
  if (loop == nullptr) return;
  loop->PostAfter(kHeldRetryInterval,
                  [parts = shared_from_this(), search](Coordinator&, Now) { parts->GoOn(search); });
}

void CheckpointKeeper::Perform(const FindCheckpoint& find) {
  const auto now = CondVar::Clock::now();
  const auto until = now + std::chrono::milliseconds(find.limit_ms);
  parts_->GoOn({.find = find,
                .until = until,
                .held_until = std::min(until, now + absl::ToChronoNanoseconds(held_patience_))});
}

absl::Status CheckpointKeeper::LookAhead(const v1::CheckpointSpec& checkpoint) {
  std::vector<std::shared_ptr<DiskAnswer>> answers;
  const auto ask = [&](const std::string& disk, const std::string& root,
                       const std::string& resume) {
    auto answer = std::make_shared<DiskAnswer>();
    const absl::Status asked = disks_.Submit(disk, [parts = parts_, root, resume, answer] {
      answer->Give(CheckStartNames(parts->files, root, resume));
    });
    if (asked.ok()) answers.push_back(std::move(answer));
  };
  const auto& [root, resume] = std::tie(checkpoint.directory(), checkpoint.resume());
  const bool names_checkpoint = NamesCheckpoint(resume);
  if (!root.empty()) ask(root, root, names_checkpoint ? kResumeLatest : resume);
  if (names_checkpoint) ask(resume, "", resume);
  const auto deadline = CondVar::Clock::now() + kLookPatience;
  absl::Status told;
  for (const std::shared_ptr<DiskAnswer>& answer : answers) {
    told.Update(answer->WaitUntil(deadline).value_or(absl::OkStatus()));
  }
  return told;
}

absl::Status CheckpointKeeper::ReadModel(v1::ModelSpec& model) {
  if (!model.has_hugging_face()) return absl::OkStatus();
  const std::string directory = model.hugging_face().directory();
  if (directory.empty() || directory.front() != '/') {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.hugging_face.directory: is \"", directory,
        "\"; the coordinator reads its config.json and needs an absolute path, or a job in which "
        "the command line has read it"));
  }
  auto read = std::make_shared<v1::ModelSpec>(model);
  PENSTOCK_RETURN_IF_ERROR(
      DoOnDisk(directory, absl::StrCat("model.hugging_face.directory: ", directory),
               [parts = parts_, read] { return ReadHuggingFaceConfig(parts->files, "", *read); }));
  model = *std::move(read);
  return absl::OkStatus();
}

absl::Status CheckpointKeeper::DoOnDisk(const std::string& directory, const std::string& what,
                                        std::function<absl::Status()> task) {
  auto answer = std::make_shared<DiskAnswer>();
  PENSTOCK_RETURN_IF_ERROR(
      disks_.Submit(directory, [task = std::move(task), answer] { answer->Give(task()); }));
  const std::optional<absl::Status> told = answer->WaitUntil(CondVar::Clock::now() + kLookPatience);
  if (told.has_value()) return *told;
  return absl::UnavailableError(
      absl::StrCat(what, " is on a disk that does not answer; try again later"));
}

void CheckpointKeeper::Perform(const CommitStaged& commit) {
  auto task = [parts = parts_, commit] {
    PENSTOCK_FAULT_POINT(kKeeperBeforeCommit);
    absl::StatusOr<CommittedCheckpoint> committed =
        CommitCheckpoint(parts->files, commit.options, commit.manifest);
    PENSTOCK_FAULT_POINT(kKeeperAfterCommit);
    parts->Answer(commit.job_id, CheckpointCommitted{commit.manifest.step, std::move(committed)});
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
