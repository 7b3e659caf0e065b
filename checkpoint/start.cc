#include "checkpoint/start.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"

namespace penstock {
namespace {

// `found` is the job's own, and not past its end.
absl::Status CheckFits(const FoundCheckpoint& found, const StartQuery& query) {
  PENSTOCK_RETURN_IF_ERROR(Annotate(
      CompareFingerprints(found.manifest.fingerprint, query.fingerprint), found.directory));
  if (found.manifest.step > query.steps) {
    return absl::InvalidArgumentError(absl::StrCat(
        found.directory, " is at step ", found.manifest.step, ", beyond training.steps (",
        query.steps, "); train more steps, or resume from an earlier checkpoint"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FoundStart> Resume(Files& files, const StartQuery& query) {
  FoundCheckpoint found = {.directory = query.resume};
  if (NamesCheckpoint(query.resume)) {
    PENSTOCK_ASSIGN_OR_RETURN(found.manifest, VerifyCheckpoint(files, query.resume));
  } else {
    absl::StatusOr<FoundCheckpoint> latest = FindLatestCheckpoint(files, query.root);
    if (absl::IsNotFound(latest.status())) return FoundStart{};  // the first run of this job
    PENSTOCK_ASSIGN_OR_RETURN(found, std::move(latest));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckFits(found, query));
  FoundStart start = StartOf(found.manifest);
  start.checkpoint = found.directory;
  for (const std::string& reason : found.passed_over) {
    start.notes.push_back(absl::StrCat("passed over a newer checkpoint: ", reason));
  }
  return start;
}

// There may be no directory yet, but nothing else either.
absl::StatusOr<std::vector<std::string>> NamesIn(Files& files, const std::string& root) {
  absl::StatusOr<std::vector<std::string>> names = files.List(root);
  if (absl::IsNotFound(names.status()) && !files.Exists(root)) return std::vector<std::string>();
  if (!names.ok()) return Annotate(names.status(), "checkpoint.directory");
  return names;
}

}  // namespace

FoundStart StartOf(const Manifest& manifest) {
  return {.step = manifest.step,
          .updates = manifest.updates,
          .layer_updates = manifest.layer_updates,
          .extra_cuts = manifest.extra_cuts,
          .method = manifest.method,
          .stage_layers = manifest.stage_layers,
          .layer_order = manifest.layer_order,
          .schedule = manifest.schedule,
          .arithmetics = manifest.arithmetics};
}

bool NamesCheckpoint(const std::string& resume) {
  return !resume.empty() && resume != kResumeLatest;
}

absl::Status CheckStartNames(Files& files, const std::string& root, const std::string& resume) {
  std::vector<std::string> names;
  if (!root.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(names, NamesIn(files, root));
  }
  if (NamesCheckpoint(resume)) return Annotate(files.List(resume).status(), "checkpoint.resume");
  if (!resume.empty()) return absl::OkStatus();
  const bool holds_some = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return ParseStepDirectoryName(name).has_value();
  });
  if (!holds_some) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint.directory: ", root,
                   " holds checkpoints of an earlier job; set checkpoint.resume: latest (or give "
                   "--resume latest) to go on from them, or name another directory"));
}

absl::StatusOr<FoundStart> FindStart(Files& files, const StartQuery& query) {
  PENSTOCK_RETURN_IF_ERROR(CheckStartNames(files, query.root, query.resume));
  if (query.resume.empty()) return FoundStart{};
  absl::StatusOr<FoundStart> start = Resume(files, query);
  if (!start.ok()) return Annotate(start.status(), "checkpoint.resume");
  return start;
}

}  // namespace penstock
