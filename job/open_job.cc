#include "job/open_job.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/defaults.h"
#include "job/keys/check_fields.h"
#include "job/resolve_pipeline.h"
#include "schedule/search.h"

namespace penstock {
namespace {

absl::Status CheckOpenPipeline(v1::PipelineSpec pipeline) {
  if (pipeline.has_stages() && pipeline.stages() < 1) {
    return InvalidKey("pipeline.stages",
                      absl::StrCat("is ", pipeline.stages(), "; expected a number from 1"));
  }
  pipeline.clear_method();
  pipeline.clear_stages();
  std::vector<const google::protobuf::FieldDescriptor*> said;
  pipeline.GetReflection()->ListFields(pipeline, &said);
  if (said.empty()) return absl::OkStatus();
  return InvalidKey(absl::StrCat("pipeline.", said.front()->name()),
                    "belongs to a method, and pipeline.method is auto; leave it out, or name "
                    "the method (pipeline.stages alone may be said)");
}

// The method of a draft whose workers have several stages each. It takes any number of microbatches.
constexpr char kLoopedStandIn[] = "looped-bfs";

// What the draft could have, but a searched order has not.
absl::Status CheckOpenOrder(const v1::PipelineSpec& pipeline) {
  if (pipeline.order() != "recorded") return absl::OkStatus();
  return InvalidKey("pipeline.order",
                    absl::StrCat("cannot be recorded with ", SearchedMethod().name,
                                 ": its order is what the search is for; use static"));
}

// The draft of a job whose order is open may have more microbatches than a search takes.
absl::Status CheckSearchedMicrobatches(const v1::JobSpec& spec, const ResolvedJob& draft) {
  const int64_t stages =
      spec.pipeline().has_stages() ? spec.pipeline().stages() : FewestStages(draft);
  const int64_t most = SearchMicrobatchesMax(stages, kSearchedSteps);
  if (draft.microbatches <= most) return absl::OkStatus();
  return InvalidKey("training.microbatches",
                    absl::StrCat("is ", draft.microbatches, ", but an order on ", stages,
                                 " stages is searched for at most ", most,
                                 "; use fewer, or name a method that has an order of its own"));
}

absl::Status CheckPlanning(const v1::JobSpec& spec) {
  const v1::PlanningSpec& planning = spec.planning();
  if (!MethodIsOpen(spec)) {
    if (!planning.has_race_seconds() && !planning.has_race_until_loss()) return absl::OkStatus();
    return InvalidKey(
        planning.has_race_seconds() ? "planning.race_seconds" : "planning.race_until_loss",
        "is for jobs with pipeline.method auto; this one names its method, so nothing races");
  }
  if (planning.split() == "estimated") {
    return InvalidKey("planning.split",
                      "is estimated, but methods can only be compared by measured times; name a "
                      "method, or leave the key out");
  }
  return absl::OkStatus();
}

}  // namespace

bool MethodIsOpen(const v1::JobSpec& spec) { return spec.pipeline().method() == kOpenMethod; }

bool OrderIsOpen(const v1::JobSpec& spec) {
  const v1::PipelineSpec& pipeline = spec.pipeline();
  return pipeline.method() == SearchedMethod().name && pipeline.schedule_file().empty() &&
         pipeline.schedule().empty();
}

bool HasPlacementOf(const ResolvedJob& draft, const ResolvedJob& ordered, int64_t stages) {
  return ordered.stages_per_worker == draft.stages_per_worker &&
         ordered.ReplicasOfStages(stages) == draft.ReplicasOfStages(stages);
}

bool SplitIsOpen(const v1::JobSpec& spec, const ResolvedJob& job) {
  return MethodIsOpen(spec) || (spec.planning().split() != "estimated" &&
                                job.stage_layers.empty() && job.listed == nullptr);
}

v1::JobSpec DraftOf(const v1::JobSpec& spec) {
  v1::JobSpec draft = spec;
  if (MethodIsOpen(spec) || OrderIsOpen(spec)) {
    draft.clear_prediction();  // of a job with a method and an order
    v1::PipelineSpec& pipeline = *draft.mutable_pipeline();
    pipeline.clear_method();
    if (pipeline.stages_per_worker() > 1) pipeline.set_method(kLoopedStandIn);
  }
  FillDefaults(draft);
  return draft;
}

void FillKnownDefaults(v1::JobSpec& spec) {
  if (MethodIsOpen(spec)) {
    FillDefaultsOfAnyMethod(spec);
  } else {
    FillDefaults(spec);
  }
}

absl::StatusOr<ResolvedJob> ResolveSubmitted(const v1::JobSpec& spec) {
  PENSTOCK_RETURN_IF_ERROR(CheckPlanning(spec));
  if (MethodIsOpen(spec)) PENSTOCK_RETURN_IF_ERROR(CheckOpenPipeline(spec.pipeline()));
  if (OrderIsOpen(spec)) PENSTOCK_RETURN_IF_ERROR(CheckOpenOrder(spec.pipeline()));
  const v1::JobSpec draft = DraftOf(spec);
  absl::StatusOr<ResolvedJob> job = ResolveJob(draft);
  if (job.ok() && OrderIsOpen(spec)) {
    PENSTOCK_RETURN_IF_ERROR(CheckSearchedMicrobatches(spec, *job));
  }
  const std::string& stand_in = draft.pipeline().method();
  if (job.ok() || !OrderIsOpen(spec) || !absl::StrContains(job.status().message(), stand_in)) {
    return job;
  }
  // The job does not name this method.
  return absl::InvalidArgumentError(absl::StrCat(job.status().message(), " (", stand_in,
                                                 " stands for ", SearchedMethod().name,
                                                 " until its order is found)"));
}

}  // namespace penstock
