#include "services/cli/train_job.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/start.h"
#include "coordinator/start_query.h"
#include "job/open_job.h"
#include "job/resolve.h"
#include "model/layer_order.h"
#include "planner/job/searched_order.h"
#include "worker/open_data.h"

namespace penstock {
namespace {

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

// For a job that does not say how many stages it has. Workers beyond whole stages would have nothing to do.
absl::StatusOr<int> WorkersForAnyStages(const ResolvedJob& job, int asked) {
  const int of_stage = job.stage_replicas.empty() ? 1 : job.stage_replicas.front();
  if (asked == 0) return (kDefaultWorkers + of_stage - 1) / of_stage * of_stage;
  if (asked % of_stage == 0) return asked;
  const int below = asked / of_stage * of_stage;
  return absl::InvalidArgumentError(
      absl::StrCat("--workers ", asked, " is not a multiple of pipeline.replicas, ", of_stage,
                   ", the workers of each stage; ", below > 0 ? absl::StrCat(below, " or ") : "",
                   below + of_stage, " would do"));
}

absl::StatusOr<int> WorkersFor(const v1::JobSpec& spec, const ResolvedJob& job, int asked) {
  const bool says_itself = job.listed != nullptr || job.knows_stages();
  const bool known = spec.pipeline().has_stages() || says_itself;
  if (!known) return WorkersForAnyStages(job, asked);
  const int64_t stages = says_itself ? job.StagesOn(1) : spec.pipeline().stages();
  const auto needed = static_cast<int>(job.WorkersOf(stages));
  if (asked == 0) return needed;
  if (needed > asked) {
    if (job.method->placement == Placement::kRoundTrip) {
      return absl::InvalidArgumentError(
          absl::StrCat(job.workers.has_value() ? "pipeline.workers" : "pipeline.stages", ": is ",
                       job.workers.has_value() ? needed : stages, ", which takes ", needed,
                       " workers, more than --workers ", asked, "; give --workers ", needed,
                       " or --set pipeline.workers=", asked));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("pipeline.stages: is ", stages, ", which takes ", needed,
                     " workers, more than --workers ", asked, "; give --workers ", needed,
                     !says_itself && job.StagesOn(asked) > 0
                         ? absl::StrCat(" or --set pipeline.stages=", job.StagesOn(asked))
                         : ""));
  }
  return asked;
}

// Without pipeline.stages the job gets all that the workers hold.
absl::Status FillStages(v1::JobSpec& spec, const ResolvedJob& job, int workers, bool by_default) {
  if (spec.pipeline().has_stages()) return absl::OkStatus();
  const int64_t stages = job.StagesOn(workers);
  spec.mutable_pipeline()->set_stages(static_cast<int32_t>(stages));
  return Annotate(CheckStages(job, stages),
                  absl::StrCat("--workers ", workers, by_default ? " (the default)" : ""));
}

// Whether a job comes to the same weights with any split of its layers (job/prediction.cc, CheckFeedback).
bool AnySplitIsAlike(const ResolvedJob& job) {
  return job.method->synchronous && AreAlike(job.stage_replicas);
}

// What the user should know where layers are split by estimate, as a line.
std::string NoteOnEstimatedSplit(const ResolvedJob& job) {
  return AnySplitIsAlike(job)
             ? ""
             : "layers are split by estimate; a cluster measures its workers, and its split "
               "may be another: put the lines that it prints into the job to repeat its run\n";
}

// The split that the job's own checkpoints were trained with, where the job leaves it open: a reference of that job has the
// same. Returns what the user should know of it, as a line.
std::string TakeSavedSplit(Files& files, const ResolvedJob& job, v1::JobSpec& spec) {
  const int32_t stages = spec.pipeline().stages();
  if (!SplitIsOpen(spec, job) || stages < 2 || stages == job.model.size()) return "";
  const std::string& directory = spec.checkpoint().directory();
  const absl::StatusOr<FoundCheckpoint> found =
      directory.empty() ? absl::NotFoundError("") : FindLatestCheckpoint(files, directory);
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  const bool is_of_job =
      found.ok() && found->manifest.method == pipeline.method() &&
      (pipeline.layer_order().empty() || LayerOrderOf(job.model) == found->manifest.layer_order) &&
      found->manifest.stage_layers.size() == static_cast<size_t>(stages) &&
      CompareFingerprints(found->manifest.fingerprint, FingerprintOf(spec, job)).ok();
  if (!is_of_job) return NoteOnEstimatedSplit(job);
  const std::vector<int32_t>& layers = found->manifest.stage_layers;
  const std::vector<std::string>& order = found->manifest.layer_order;
  const v1::PipelineSpec open = pipeline;
  pipeline.mutable_stage_layers()->Assign(layers.begin(), layers.end());
  pipeline.mutable_layer_order()->Assign(order.begin(), order.end());
  const bool takes_order = OrderIsOpen(spec);
  if (takes_order) pipeline.set_schedule(found->manifest.schedule);
  const absl::StatusOr<ResolvedJob> taken = ResolveJob(spec);
  if (!taken.ok() || (takes_order && !HasPlacementOf(job, *taken, stages))) {
    pipeline = open;  // the order is for other replicas or microbatches
    return NoteOnEstimatedSplit(job);
  }
  return absl::StrCat("layers are split ", absl::StrJoin(layers, "-"), ", as in ", found->directory,
                      "\n");
}

}  // namespace

absl::StatusOr<TrainJob> PrepareTrainJob(Files& files, const TrainJobOptions& options) {
  TrainJob train;
  train.data_root =
      options.data_root.empty() ? FolderOfJob(options.job.path) : Absolute(options.data_root);
  JobFileOptions file = options.job;
  file.root = train.data_root;
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJob(file));
  const bool is_open = MethodIsOpen(document.spec);
  if (is_open && options.reference) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.job.path,
                     ": pipeline.method: is auto, which needs workers to choose for; name a "
                     "method, or train without --reference"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(train.spec, CompleteSubmission(document));
  train.notes = NotesOf(document, train.spec);
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob resolved, ResolveSubmitted(train.spec));
  if (is_open) {
    const int stages = train.spec.pipeline().stages();
    train.workers = options.workers > 0 ? options.workers : std::max(stages, kDefaultWorkers);
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(train.workers, WorkersFor(train.spec, resolved, options.workers));
    PENSTOCK_RETURN_IF_ERROR(FillStages(train.spec, resolved, train.workers, options.workers == 0));
  }

  PENSTOCK_RETURN_IF_ERROR(CheckJobData(files, train.data_root, resolved, train.spec));

  if (train.spec.model()
          .has_pretrained()) {  // checkpoints say where it is (inference/hugging_face.h)
    v1::PretrainedSpec& pretrained = *train.spec.mutable_model()->mutable_pretrained();
    pretrained.set_directory(JoinPath(train.data_root, pretrained.directory()));
  }
  v1::CheckpointSpec& checkpoint = *train.spec.mutable_checkpoint();
  if (!checkpoint.directory().empty()) {
    checkpoint.set_directory(Absolute(checkpoint.directory()));
  }
  if (options.reference) {
    absl::StrAppend(&train.notes, TakeSavedSplit(files, resolved, train.spec));
    if (OrderIsOpen(train.spec)) {
      const bool split_counts = SplitIsOpen(train.spec, resolved) && !AnySplitIsAlike(resolved);
      PENSTOCK_RETURN_IF_ERROR(FillEstimatedOrder(train.spec.pipeline().stages(), train.spec));
      absl::StrAppend(&train.notes,
                      "the order of a step is searched for estimated times; a cluster measures its "
                      "workers and may have another, ",
                      split_counts ? "with the same weights in the end if its split is the same\n"
                                   : "with the same weights in the end\n");
    }
  } else {
    PENSTOCK_RETURN_IF_ERROR(FindStart(files, StartQueryOf(train.spec, resolved)).status());
  }
  return train;
}

}  // namespace penstock
