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

// Resolves `spec` as a pipeline. Without pipeline.stages it gets a stage per worker.
absl::StatusOr<ResolvedJob> ResolvePipeline(v1::JobSpec& spec, int workers, bool by_default) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob resolved, ResolveJob(spec));
  if (spec.pipeline().has_stages()) return resolved;
  spec.mutable_pipeline()->set_stages(workers);
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(CheckStages(resolved, workers),
               absl::StrCat("--workers ", workers, by_default ? " (the default)" : "")));
  return resolved;
}

}  // namespace

absl::StatusOr<TrainJob> PrepareTrainJob(Files& files, const TrainJobOptions& options) {
  TrainJob train;
  PENSTOCK_ASSIGN_OR_RETURN(train.spec, LoadJob(options.job));
  PENSTOCK_ASSIGN_OR_RETURN(train.workers, WorkersFor(train.spec, options.workers));
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob resolved,
                            ResolvePipeline(train.spec, train.workers, options.workers == 0));

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
