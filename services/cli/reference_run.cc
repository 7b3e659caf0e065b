#include "services/cli/reference_run.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "compute/backend.h"
#include "coordinator/run_progress.h"
#include "job/resolve.h"
#include "planner/job/assign.h"
#include "services/cli/progress.h"
#include "services/cli/progress_display.h"
#include "worker/reference.h"

namespace penstock {
namespace {

double MeanOfLastLosses(const std::vector<StepResult>& steps) {
  const size_t count = std::min(steps.size(), RunProgress::kTrainLossSteps);
  double sum = 0;
  for (size_t i = steps.size() - count; i < steps.size(); ++i) sum += steps[i].loss;
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

void AddPoint(int64_t step, double loss,
              google::protobuf::RepeatedPtrField<v1::LossPoint>& points) {
  v1::LossPoint& point = *points.Add();
  point.set_step(step);
  point.set_loss(loss);
}

v1::GetJobResponse ResponseOf(const v1::JobSpec& spec, const ResolvedJob& job,
                              const ReferenceResult& trained, double seconds) {
  v1::GetJobResponse response;
  response.mutable_summary()->set_name(spec.name());
  response.mutable_summary()->set_method(spec.pipeline().method());
  response.mutable_summary()->set_state(v1::JOB_STATE_SUCCEEDED);
  v1::JobResult& result = *response.mutable_result();
  result.set_stages(spec.pipeline().stages());
  result.set_microbatches(job.microbatches);
  result.set_steps(static_cast<int64_t>(trained.steps.size()));
  result.set_samples(result.steps() * job.batch);
  result.set_tokens(result.steps() * job.tokens_per_step());
  result.set_wall_seconds(seconds);
  result.set_samples_per_second(static_cast<double>(result.samples()) / seconds);
  result.set_tokens_per_second(static_cast<double>(result.tokens()) / seconds);
  result.set_train_loss(MeanOfLastLosses(trained.steps));
  result.set_weights_sha256(trained.weights_sha256);
  for (const StepResult& step : trained.steps) {
    AddPoint(step.step, step.loss, *result.mutable_losses());
  }
  for (const ReferenceResult::Validation& validation : trained.validations) {
    const Evaluation& evaluation = validation.evaluation;
    AddPoint(validation.step, evaluation.loss, *result.mutable_validations());
    v1::LossPoint& point = *result.mutable_validations()->rbegin();
    WriteMetrics(evaluation.metrics, *point.mutable_metrics());
    result.set_validation_loss(evaluation.loss);
    *result.mutable_validation_metrics() = point.metrics();
  }
  return response;
}

}  // namespace

absl::StatusOr<v1::GetJobResponse> RunReference(const TrainJob& train,
                                                const std::vector<int64_t>& extra_cuts,
                                                std::optional<RecordedOrder> recorded,
                                                Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(train.spec));
  ReferenceOptions options = {.spec = train.spec,
                              .extra_cuts = extra_cuts,
                              .recorded = std::move(recorded),
                              .data_root = train.data_root};
  PENSTOCK_ASSIGN_OR_RETURN(options.stages, SplitLayers(job, train.spec.pipeline().stages()));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeCpuBackend(job.threads));
  Clock& clock = RealClock();
  std::vector<int64_t> cuts;
  for (const Cut& cut : CutsOf(train.spec, /*first_step=*/0, extra_cuts)) cuts.push_back(cut.step);
  Progress progress(job.steps, cuts);
  ProgressDisplay display(console, clock);
  options.on_step = [&](const StepResult& step) {
    v1::JobEvent event;
    event.mutable_step_done()->set_step(step.step);
    event.mutable_step_done()->set_loss(step.loss);
    event.mutable_step_done()->set_samples(job.batch);
    event.mutable_step_done()->set_tokens(job.tokens_per_step());
    event.mutable_step_done()->set_monotonic_ns(clock.MonotonicNs());
    progress.Add(event);
    display.Update(progress);
  };
  const int64_t start_ns = clock.MonotonicNs();
  PENSTOCK_ASSIGN_OR_RETURN(const ReferenceResult trained,
                            TrainReference(options, RealFiles(), *backend));
  display.Finish(progress);
  return ResponseOf(train.spec, job, trained,
                    static_cast<double>(clock.MonotonicNs() - start_ns) * 1e-9);
}

}  // namespace penstock
