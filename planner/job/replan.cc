#include "planner/job/replan.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/prediction.h"
#include "job/profile/device_times.h"
#include "job/run/message_bytes.h"
#include "planner/cost/run_costs.h"
#include "planner/job/timed_split.h"
#include "schedule/action.h"

namespace penstock {
namespace {

absl::Status NoneBecause(const std::string& why) { return absl::FailedPreconditionError(why); }

// Returns the time of a pass by its action's name, on a device of speed 1; 0 of other actions.
double PassSeconds(const std::string& action, const StageCosts& costs) {
  if (action == ActionName(ActionKind::kForward) || action == ActionName(ActionKind::kRecompute))
    return costs.forward_s;
  if (action == ActionName(ActionKind::kBackwardInput)) return costs.backward_input_s;
  if (action == ActionName(ActionKind::kBackwardWeight)) return costs.backward_weight_s;
  return 0.0;
}

// Returns null if the report is of no stage of the plan.
const v1::StageAssignment* StageOf(const v1::Plan& plan, const v1::StageReport& report) {
  const bool known = report.stage() >= 0 && report.stage() < plan.stages_size();
  return known ? &plan.stages(report.stage()) : nullptr;
}

LayerRange RangeOf(const v1::StageAssignment& stage) {
  return {stage.first_layer(), stage.layers()};
}

// Returns, by worker of the plan, the speed at which the times would be as measured.
absl::StatusOr<std::vector<double>> MeasuredSpeeds(
    const v1::DeviceTimes& times, const ResolvedJob& job, const v1::Plan& plan, int32_t workers,
    const google::protobuf::RepeatedPtrField<v1::StageReport>& reports) {
  std::vector<double> predicted_s(workers);
  std::vector<double> measured_s(workers);
  for (const v1::StageReport& report : reports) {
    const v1::StageAssignment* stage = StageOf(plan, report);
    if (stage == nullptr) continue;
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<StageCosts> costs,
                              StageCostsOf(times, job.model, {RangeOf(*stage)}));
    AddBundles(times.bundles(), job, RangeOf(*stage), costs.front());
    for (const v1::ActionTime& action : report.actions()) {
      const double pass_s = PassSeconds(action.action(), costs.front());
      if (pass_s <= 0.0 || action.median_seconds() <= 0.0) continue;
      predicted_s[stage->worker_index()] += pass_s;
      measured_s[stage->worker_index()] += action.median_seconds();
    }
  }
  std::vector<double> speeds;
  for (int32_t worker = 0; worker < workers; ++worker) {
    if (measured_s[worker] <= 0.0) {
      return NoneBecause(absl::StrCat("worker ", worker, " of the pipeline told no times"));
    }
    speeds.push_back(
        std::clamp(predicted_s[worker] / measured_s[worker], 1.0 / kSpeedMax, kSpeedMax));
  }
  return speeds;
}

// Bytes of a worker's memory grow with the layers that it holds, or with their weights, whichever is more.
absl::Status CheckFits(const ResolvedJob& job, const Topology& topology, const v1::Plan& plan,
                       absl::Span<const LayerRange> layers,
                       const google::protobuf::RepeatedPtrField<v1::StageReport>& reports,
                       absl::Span<const int64_t> memory_bytes) {
  struct Held {
    double layers = 0;
    double weights = 0;
  };
  std::vector<Held> before(memory_bytes.size());
  std::vector<Held> after(memory_bytes.size());
  const auto add = [&job](const LayerRange& range, Held& held) {
    held.layers += range.count;
    held.weights += static_cast<double>(WeightsOfLayers(job.model, range));
  };
  for (const v1::StageAssignment& stage : plan.stages()) {
    add(RangeOf(stage), before[stage.worker_index()]);
    add(layers[topology[StageId(stage.stage())].part], after[stage.worker_index()]);
  }
  for (const v1::StageReport& report : reports) {
    const v1::StageAssignment* stage = StageOf(plan, report);
    if (stage == nullptr) continue;
    const auto worker = static_cast<size_t>(stage->worker_index());
    const double by_weights =
        before[worker].weights > 0 ? after[worker].weights / before[worker].weights : 1.0;
    const double growth = std::max(by_weights, after[worker].layers / before[worker].layers);
    const double needed = static_cast<double>(report.peak_memory_bytes()) * growth;
    if (memory_bytes[worker] == 0 || growth <= 1.0 ||
        needed <= static_cast<double>(memory_bytes[worker])) {
      continue;
    }
    return NoneBecause(absl::StrFormat(
        "worker %s might need %.4g MB for its new layers, and has %.4g", stage->worker(),
        needed / 1e6, static_cast<double>(memory_bytes[worker]) / 1e6));
  }
  return absl::OkStatus();
}

std::vector<int32_t> CountsOf(absl::Span<const LayerRange> layers) {
  std::vector<int32_t> counts;
  for (const LayerRange& range : layers) counts.push_back(range.count);
  return counts;
}

}  // namespace

google::protobuf::RepeatedPtrField<v1::StageReport> TimesSince(
    const google::protobuf::RepeatedPtrField<v1::StageReport>& before,
    google::protobuf::RepeatedPtrField<v1::StageReport> reports) {
  std::map<std::pair<int32_t, std::string>, const v1::ActionTime*> earlier;
  for (const v1::StageReport& report : before) {
    for (const v1::ActionTime& action : report.actions()) {
      earlier[{report.stage(), action.action()}] = &action;
    }
  }
  for (v1::StageReport& report : reports) {
    for (v1::ActionTime& action : *report.mutable_actions()) {
      const auto known = earlier.find({report.stage(), action.action()});
      if (known == earlier.end()) continue;
      const int64_t count = action.count() - known->second->count();
      const double seconds = action.seconds() - known->second->seconds();
      if (count > 0 && seconds > 0) {
        action.set_median_seconds(seconds / static_cast<double>(count));
      }
    }
  }
  return reports;
}

absl::StatusOr<NewSplit> PlanAnew(
    const v1::JobSpec& spec, const ResolvedJob& job, const v1::Plan& plan,
    const google::protobuf::RepeatedPtrField<v1::StageReport>& reports,
    absl::Span<const int64_t> memory_bytes) {
  if (!spec.prediction().has_times()) {
    return NoneBecause("the job's prediction has no times (prediction.times) to plan with");
  }
  const auto workers = static_cast<int32_t>(memory_bytes.size());
  const auto stages = static_cast<int32_t>(job.StagesOn(workers));
  const Topology topology = TopologyOf(job, stages);
  v1::DeviceTimes times = spec.prediction().times();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> speeds,
                            MeasuredSpeeds(times, job, plan, workers, reports));
  times.mutable_speeds()->Assign(speeds.begin(), speeds.end());

  std::vector<LayerRange> now(stages);
  for (const v1::StageAssignment& stage : plan.stages()) {
    now[topology[StageId(stage.stage())].part] = RangeOf(stage);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<LayerRange> layers,
                            SplitByTimes(job, topology, stages, times));
  NewSplit split = {.stage_layers = CountsOf(layers)};
  if (layers == now)
    return NoneBecause("by the measured times, too, the layers are split best as they are");
  PENSTOCK_RETURN_IF_ERROR(CheckFits(job, topology, plan, layers, reports, memory_bytes));
  const ScheduleOptions options_now = ScheduleOptionsOf(job, topology, now);
  PENSTOCK_ASSIGN_OR_RETURN(const StepsToSimulate steps_now,
                            StepsToSimulateOf(job, options_now, stages));
  PENSTOCK_ASSIGN_OR_RETURN(const double before_s,
                            StepSeconds(job, options_now, steps_now, now, times));
  const ScheduleOptions options = ScheduleOptionsOf(job, topology, layers);
  PENSTOCK_ASSIGN_OR_RETURN(const StepsToSimulate steps, StepsToSimulateOf(job, options, stages));
  PENSTOCK_ASSIGN_OR_RETURN(const SimulatedStep after,
                            SimulateStep(job, options, steps, layers, times));
  split.step_s_before = before_s;
  if (after.step_s > before_s * (1.0 - kReplanGainMin)) {
    return NoneBecause(
        absl::StrFormat("layers split %s instead of %s would make a step of %.4g s one of %.4g s, "
                        "which is not %.0f %% less",
                        absl::StrJoin(split.stage_layers, "-"), absl::StrJoin(CountsOf(now), "-"),
                        before_s, after.step_s, kReplanGainMin * 100.0));
  }

  v1::JobSpec changed = spec;
  changed.mutable_pipeline()->mutable_stage_layers()->Assign(split.stage_layers.begin(),
                                                             split.stage_layers.end());
  split.prediction.set_step_seconds(after.step_s);
  for (const double bytes : after.sent_bytes) split.prediction.add_sent_bytes(bytes);
  SetPredictedTimes(times, split.prediction);
  split.prediction.set_job_sha256(PredictedJobSha256(changed));
  return split;
}

}  // namespace penstock
