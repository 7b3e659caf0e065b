#include "results/step_prediction.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "job/run/ties.h"

namespace penstock {
namespace {

// The steps done at the last cut before the end; 0 if there is none.
int64_t LastCutBeforeEnd(const v1::GetJobResponse& job) {
  int64_t last = 0;
  for (const Cut& cut : CutsOf(job.spec(), 0, job.result().extra_cuts())) {
    if (cut.step < job.result().steps()) last = cut.step;
  }
  return last;
}

// The spans from the forward of `first_microbatch` on.
Timeline After(const Timeline& timeline, int64_t first_microbatch) {
  int64_t start_ns = INT64_MAX;
  for (const Span& span : timeline.spans) {
    const bool begins =
        span.action.kind == ActionKind::kForward && span.action.microbatch >= first_microbatch;
    if (begins) start_ns = std::min(start_ns, span.start_ns);
  }
  Timeline after = {.workers = timeline.workers};
  std::copy_if(timeline.spans.begin(), timeline.spans.end(), std::back_inserter(after.spans),
               [start_ns](const Span& span) { return span.start_ns >= start_ns; });
  return after;
}

}  // namespace

absl::StatusOr<StepPrediction> PredictJob(const v1::GetJobResponse& job, const Timeline& timeline) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob resolved, ResolveJob(job.spec()));
  if (resolved.order == Order::kRecorded) {
    return absl::FailedPreconditionError("what is predicted is the static order");
  }
  const Topology topology = TopologyOf(resolved, job.result().stages());
  std::vector<LayerRange> layers;  // by stage
  for (const v1::StageAssignment& stage : job.plan().stages()) {
    layers.push_back({stage.first_layer(), stage.layers()});
  }
  if (layers.size() != topology.table.size()) {
    return absl::FailedPreconditionError("the job has no plan to predict the steps of");
  }
  const ScheduleOptions options =
      ScheduleOptionsOf(resolved, topology, LayersOfParts(topology, layers));
  return PredictSteps(After(timeline, LastCutBeforeEnd(job) * resolved.microbatches),
                      *resolved.method, options);
}

std::string PredictionText(const StepPrediction& prediction) {
  return absl::StrFormat(
      "step time %.1f ms, predicted %.1f ms (%+.1f %%) from the first half of the timeline; "
      "overhead %.0f us per action\n",
      prediction.measured_step_s * 1e3, prediction.predicted_step_s * 1e3,
      prediction.error() * 100.0, prediction.overhead_s * 1e6);
}

}  // namespace penstock
