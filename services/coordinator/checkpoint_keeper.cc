#include "services/coordinator/checkpoint_keeper.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace penstock {
namespace {

constexpr char kLatest[] = "latest";

absl::StatusOr<FoundStart> StartAt(const std::string& directory, const Manifest& manifest,
                                   const FindCheckpoint& find) {
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(CompareFingerprints(manifest.fingerprint, find.fingerprint), directory));
  return FoundStart{
      .checkpoint = directory, .step = manifest.step, .extra_cuts = manifest.extra_cuts};
}

absl::StatusOr<FoundStart> FindLatest(Files& files, const FindCheckpoint& find) {
  const absl::StatusOr<FoundCheckpoint> found = FindLatestCheckpoint(files, find.root);
  if (absl::IsNotFound(found.status())) {
    return FoundStart{};  // the first run of this job
  }
  PENSTOCK_RETURN_IF_ERROR(found.status());
  PENSTOCK_ASSIGN_OR_RETURN(FoundStart start, StartAt(found->directory, found->manifest, find));
  for (const std::string& reason : found->passed_over) {
    start.notes.push_back(absl::StrCat("passed over a newer checkpoint: ", reason));
  }
  return start;
}

}  // namespace

absl::StatusOr<FoundStart> FindStart(Files& files, const FindCheckpoint& find) {
  if (!find.root.empty() && files.Exists(find.root)) {
    PENSTOCK_RETURN_IF_ERROR(SweepStaging(files, find.root));
  }
  if (find.resume == kLatest) {
    return FindLatest(files, find);
  }
  if (!find.resume.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const Manifest manifest, VerifyCheckpoint(files, find.resume));
    return StartAt(find.resume, manifest, find);
  }
  if (!find.root.empty() && !absl::IsNotFound(FindLatestCheckpoint(files, find.root).status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint.directory ", find.root,
                     " holds checkpoints of an earlier job; set checkpoint.resume: latest to go on "
                     "from them, or name another directory"));
  }
  return FoundStart{};
}

CheckpointKeeper::CheckpointKeeper(EventLoop& loop, Files& files)
    : loop_(loop), files_(files), tasks_(/*threads=*/1, kTasksMax, "checkpoints") {}

void CheckpointKeeper::Perform(const FindCheckpoint& find) {
  const auto answer = [this, job_id = find.job_id](absl::StatusOr<FoundStart> found) {
    loop_.Post([job_id, found = std::move(found)](Coordinator& coordinator, Now now) {
      coordinator.OnStartFound(job_id, found, now);
    });
  };
  if (!tasks_.Submit([this, find, answer] { answer(FindStart(files_, find)); })) {
    answer(absl::ResourceExhaustedError("too much work on checkpoints waits"));
  }
}

void CheckpointKeeper::Perform(const CommitStaged& commit) {
  const auto answer = [this, job_id = commit.job_id,
                       step = commit.manifest.step](absl::StatusOr<std::string> directory) {
    loop_.Post([job_id, step, directory = std::move(directory)](Coordinator& coordinator, Now now) {
      coordinator.OnCommitted(job_id, step, directory, now);
    });
  };
  if (!tasks_.Submit([this, commit, answer] {
        answer(CommitCheckpoint(files_, commit.options, commit.manifest));
      })) {
    answer(absl::ResourceExhaustedError("too much work on checkpoints waits"));
  }
}

}  // namespace penstock
