#include "services/cli/train_job.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/start.h"
#include "coordinator/start_query.h"
#include "job/resolve.h"
#include "services/cli/data_file.h"

namespace penstock {
namespace {

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

absl::StatusOr<int> WorkersFor(const v1::JobSpec& spec, const ResolvedJob& job, int asked) {
  const int stages = spec.pipeline().stages();
  const int needed = stages / job.stages_per_worker;
  if (asked == 0) return stages > 0 ? needed : kDefaultWorkers;
  if (needed > asked) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pipeline.stages: is ", stages, ", more than --workers ", asked,
        job.stages_per_worker > 1
            ? absl::StrCat(" hold with ", job.stages_per_worker, " stages each")
            : "",
        "; give --workers ", needed, " or --set pipeline.stages=", asked * job.stages_per_worker));
  }
  return asked;
}

// Without pipeline.stages the job gets all that the workers hold.
absl::Status FillStages(v1::JobSpec& spec, const ResolvedJob& job, int workers, bool by_default) {
  if (spec.pipeline().has_stages()) return absl::OkStatus();
  const int stages = workers * job.stages_per_worker;
  spec.mutable_pipeline()->set_stages(stages);
  return Annotate(CheckStages(job, stages),
                  absl::StrCat("--workers ", workers, by_default ? " (the default)" : ""));
}

}  // namespace

absl::StatusOr<TrainJob> PrepareTrainJob(Files& files, const TrainJobOptions& options) {
  TrainJob train;
  PENSTOCK_ASSIGN_OR_RETURN(train.spec, LoadJob(options.job));
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob resolved, ResolveJob(train.spec));
  PENSTOCK_ASSIGN_OR_RETURN(train.workers, WorkersFor(train.spec, resolved, options.workers));
  PENSTOCK_RETURN_IF_ERROR(FillStages(train.spec, resolved, train.workers, options.workers == 0));

  const std::string folder = std::filesystem::path(options.job.path).parent_path().string();
  train.data_root =
      Absolute(options.data_root.empty() ? (folder.empty() ? "." : folder) : options.data_root);
  PENSTOCK_RETURN_IF_ERROR(CheckJobData(files, train.data_root, resolved, train.spec));

  v1::CheckpointSpec& checkpoint = *train.spec.mutable_checkpoint();
  if (!checkpoint.directory().empty()) {
    checkpoint.set_directory(Absolute(checkpoint.directory()));
  }
  if (!options.reference) {
    PENSTOCK_RETURN_IF_ERROR(FindStart(files, StartQueryOf(train.spec, resolved)).status());
  }
  return train;
}

}  // namespace penstock
