#include "job/fewer_stages.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "schedule/topology.h"

namespace penstock {

bool AnyStagesAreAlike(const ResolvedJob& job) {
  const Placement placement = job.method->placement;
  const bool one_pipeline = placement == Placement::kStraight || placement == Placement::kLooped ||
                            placement == Placement::kV;
  return job.method->synchronous && job.order == Order::kStatic && one_pipeline &&
         job.listed == nullptr && !job.knows_stages() && AreAlike(job.stage_replicas);
}

absl::StatusOr<v1::JobSpec> WithFewerStages(const v1::JobSpec& spec, const ResolvedJob& job,
                                            int64_t workers, int64_t stages_min) {
  if (!AnyStagesAreAlike(job)) {
    return absl::FailedPreconditionError(
        absl::StrCat("with ", job.method->name,
                     " as the job has it, another number of stages is another training"));
  }
  const int64_t fewest = std::max<int64_t>(1, stages_min);
  for (int64_t stages = spec.pipeline().stages() - 1; stages >= fewest; --stages) {
    if (job.WorkersOf(stages) > workers) continue;
    v1::JobSpec fewer = spec;
    v1::PipelineSpec& pipeline = *fewer.mutable_pipeline();
    pipeline.set_stages(static_cast<int32_t>(stages));
    pipeline.clear_stage_layers();
    fewer.clear_prediction();
    const absl::StatusOr<ResolvedJob> resolved = ResolveJob(fewer);
    if (!resolved.ok() || !CheckStages(*resolved, stages).ok()) continue;
    if (resolved->WorkersOf(stages) >= 1) return fewer;
  }
  return absl::FailedPreconditionError(absl::StrCat("needs workers for at least ", fewest,
                                                    fewest == 1 ? " stage" : " stages", ", ",
                                                    workers, " are free"));
}

}  // namespace penstock
