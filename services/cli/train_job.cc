#include "services/cli/train_job.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "job/resolve.h"
#include "services/cli/data_file.h"

namespace penstock {
namespace {

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

absl::StatusOr<int> WorkersFor(const v1::JobSpec& spec, int asked) {
  const int stages = spec.pipeline().stages();
  if (asked == 0) return stages > 0 ? stages : kDefaultWorkers;
  if (stages > asked) {
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline.stages: is ", stages, ", more than --workers ", asked,
                     "; give --workers ", stages, " or --set pipeline.stages=", asked));
  }
  return asked;
}

Fingerprint FingerprintOf(const v1::JobSpec& spec, const ResolvedJob& job) {
  return MakeFingerprint({.chain = job.chain,
                          .optimizer = job.optimizer,
                          .batch = job.batch,
                          .seed = job.seed,
                          .data_sha256 = spec.data().text().sha256()});
}

absl::Status CheckResume(Files& files, const v1::JobSpec& spec, const ResolvedJob& job) {
  const std::string& resume = spec.checkpoint().resume();
  if (resume.empty()) return absl::OkStatus();
  Manifest manifest;
  std::string directory = resume;
  if (resume == "latest") {
    const std::string& root = spec.checkpoint().directory();
    if (!files.Exists(root)) return absl::OkStatus();  // nothing yet: starts anew
    const absl::StatusOr<FoundCheckpoint> found = FindLatestCheckpoint(files, root);
    if (absl::IsNotFound(found.status())) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(Annotate(found.status(), "checkpoint.resume"));
    manifest = found->manifest;
    directory = found->directory;
  } else {
    const absl::StatusOr<Manifest> verified = VerifyCheckpoint(files, resume);
    PENSTOCK_RETURN_IF_ERROR(Annotate(verified.status(), "checkpoint.resume"));
    manifest = *verified;
  }
  return Annotate(CompareFingerprints(manifest.fingerprint, FingerprintOf(spec, job)),
                  absl::StrCat("checkpoint.resume: ", directory));
}

}  // namespace

absl::StatusOr<TrainJob> PrepareTrainJob(Files& files, const TrainJobOptions& options) {
  TrainJob train;
  PENSTOCK_ASSIGN_OR_RETURN(train.spec, LoadJob(options.job));
  PENSTOCK_ASSIGN_OR_RETURN(train.workers, WorkersFor(train.spec, options.workers));
  if (!train.spec.pipeline().has_stages()) {
    train.spec.mutable_pipeline()->set_stages(train.workers);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob resolved, ResolveJob(train.spec));
  PENSTOCK_RETURN_IF_ERROR(CheckStages(resolved, train.spec.pipeline().stages()));

  const std::string folder = std::filesystem::path(options.job.path).parent_path().string();
  train.data_root =
      Absolute(options.data_root.empty() ? (folder.empty() ? "." : folder) : options.data_root);
  PENSTOCK_RETURN_IF_ERROR(CheckJobData(files, train.data_root, resolved, train.spec));

  v1::CheckpointSpec& checkpoint = *train.spec.mutable_checkpoint();
  if (!checkpoint.directory().empty()) {
    checkpoint.set_directory(Absolute(checkpoint.directory()));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckResume(files, train.spec, resolved));
  return train;
}

}  // namespace penstock
