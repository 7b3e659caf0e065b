#include "results/predicted_timeline.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "job/run/ties.h"
#include "planner/cost/run_costs.h"
#include "schedule/prediction.h"
#include "schedule/simulate.h"

namespace penstock {
namespace {

constexpr double kSecondsOfNs = 1e-9;
// Steps that are simulated before and after the compared ones, so that a stream is in its steady state.
constexpr int64_t kStepsAround = 8;
constexpr int64_t kSimulatedSpansMax = 1'000'000;

// A job as it runs: what both sides are made from.
struct ReplayPlan {
  ResolvedJob job;
  ScheduleOptions options;
  std::vector<int64_t> cuts;  // steps after which it drains
};

absl::StatusOr<ReplayPlan> PlanOf(const v1::GetJobResponse& job) {
  if (job.result().stages() < 1 || job.plan().stages().empty()) {
    return absl::FailedPreconditionError("the job has no plan yet");
  }
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedJob resolved, ResolveJob(job.spec()));
  PENSTOCK_RETURN_IF_ERROR(CheckStages(resolved, job.result().stages()));
  Topology topology = TopologyOf(resolved, job.result().stages());
  if (topology.stages() != job.plan().stages_size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job's plan has ", job.plan().stages_size(),
                     " stages, where this version of penstock expects ", topology.stages()));
  }
  std::vector<LayerRange> layers;  // by stage
  for (const v1::StageAssignment& stage : job.plan().stages()) {
    layers.push_back({stage.first_layer(), stage.layers()});
  }
  const std::vector<LayerRange> parts = LayersOfParts(topology, layers);
  ScheduleOptions options = ScheduleOptionsOf(resolved, std::move(topology), parts);
  ReplayPlan plan = {.job = std::move(resolved), .options = std::move(options), .cuts = {}};
  for (const Cut& cut : CutsOf(job.spec(), 0, job.result().extra_cuts())) {
    plan.cuts.push_back(cut.step);
  }
  return plan;
}

// The stretch between two cuts that the step after `step` steps is in.
struct Stretch {
  int64_t first = 0;
  int64_t end = 0;
};
Stretch StretchOf(const ReplayPlan& plan, int64_t step) {
  const auto end = std::upper_bound(plan.cuts.begin(), plan.cuts.end(), step);
  return {.first = end == plan.cuts.begin() ? 0 : *std::prev(end),
          .end = end == plan.cuts.end() ? plan.job.steps : *end};
}

// When a microbatch came in for training. A validation's has the same name, but no backward: what counts is the last
// forward before the first backward.
std::optional<int64_t> EntryOf(const Timeline& timeline, const Topology& topology,
                               int64_t microbatch) {
  int64_t backward_ns = INT64_MAX;
  for (const Span& span : timeline.spans) {
    const bool is_backward =
        span.lane == Lane::kCompute && span.action.kind == ActionKind::kBackwardWeight;
    if (is_backward && span.action.microbatch == microbatch) {
      backward_ns = std::min(backward_ns, span.start_ns);
    }
  }
  std::optional<int64_t> entry_ns;
  for (const Span& span : timeline.spans) {
    const Action& action = span.action;
    const bool enters = span.lane == Lane::kCompute && action.kind == ActionKind::kForward &&
                        action.microbatch == microbatch && action.index < topology.stages() &&
                        topology[action.stage()].first;
    if (enters && span.start_ns < backward_ns) {
      entry_ns = std::max(entry_ns.value_or(span.start_ns), span.start_ns);
    }
  }
  return entry_ns;
}

// Returns the part of the spans in [start_ns, end_ns), moved by `shift_ns`.
Timeline Clipped(const Timeline& timeline, int64_t start_ns, int64_t end_ns, int64_t shift_ns) {
  Timeline clipped = {.workers = timeline.workers, .spans = {}};
  for (Span span : timeline.spans) {
    span.start_ns = std::max(span.start_ns, start_ns);
    span.end_ns = std::min(span.end_ns, end_ns);
    if (span.start_ns >= span.end_ns) continue;
    span.start_ns += shift_ns;
    span.end_ns += shift_ns;
    clipped.spans.push_back(span);
  }
  return clipped;
}

// Steps of a timeline: when they began and ended.
struct StepTimes {
  int64_t start_ns = 0;
  std::vector<int64_t> ends_ns;

  int64_t end_ns() const { return ends_ns.back(); }
  double MeanSeconds() const {
    // From end to end, for in a stream steps overlap.
    const auto steps = static_cast<double>(ends_ns.size());
    const auto ns = ends_ns.size() > 1
                        ? static_cast<double>(end_ns() - ends_ns.front()) / (steps - 1)
                        : static_cast<double>(end_ns() - start_ns);
    return ns * kSecondsOfNs;
  }
};

// Measures the `count` steps after `first`. Errors: FailedPrecondition if not all of them are there.
absl::StatusOr<StepTimes> TimesOf(const Timeline& timeline, const ReplayPlan& plan,
                                  const WholeSteps& whole, int64_t first, int64_t count) {
  const std::optional<int64_t> entry_ns =
      EntryOf(timeline, plan.options.topology, first * plan.job.microbatches);
  const int64_t skip = first - whole.first;
  if (!entry_ns.has_value() || skip < 0 || skip + count > whole.count()) {
    return absl::FailedPreconditionError("the timeline does not have the whole of a step");
  }
  const auto ends = whole.ends_ns.begin() + skip;
  return StepTimes{.start_ns = *entry_ns, .ends_ns = {ends, ends + count}};
}

absl::StatusOr<SimulationCosts> CostsOfPlan(const v1::GetJobResponse& job, const ReplayPlan& plan) {
  std::vector<LayerRange> layers;
  for (const v1::StageAssignment& stage : job.plan().stages()) {
    layers.push_back({stage.first_layer(), stage.layers()});
  }
  return RunCostsOf(job.spec().prediction().times(), plan.job, plan.options.topology, layers);
}

absl::StatusOr<SimulationCosts> MeasuredCosts(const Timeline& measured, const ReplayPlan& plan,
                                              const Stretch& stretch, const StepTimes& times) {
  const auto count = static_cast<int64_t>(times.ends_ns.size());
  const int64_t counted = count < 4 ? count : count / 2;
  PENSTOCK_ASSIGN_OR_RETURN(
      const Schedule schedule,
      ScheduleOfSteps(plan.job, plan.options, stretch.first, stretch.first + counted));
  int64_t actions = 0;
  for (const Program& program : schedule.programs) {
    actions += static_cast<int64_t>(program.size());
  }
  return MeasureCosts(measured, plan.options.topology, times.start_ns, times.ends_ns[counted - 1],
                      actions);
}

// Returns the schedule around `count` steps after `first`: from a place where replicas start a new turn, to the
// cut after them where it is near.
absl::StatusOr<Schedule> ScheduleAround(const ReplayPlan& plan, const Stretch& stretch,
                                        int64_t first, int64_t count) {
  const int64_t microbatches = plan.job.microbatches;
  const int64_t cycle = plan.options.topology.cycle;
  const int64_t unit = cycle / std::gcd(cycle, microbatches);  // in steps
  const int64_t before = std::max<int64_t>(0, first - stretch.first - kStepsAround) / unit * unit;
  const int64_t from = stretch.first + before;
  const int64_t after = first + count == stretch.end ? 0 : kStepsAround;
  const int64_t steps = (first + count + after - from + unit - 1) / unit * unit;
  return ScheduleOfSteps(plan.job, plan.options, from, std::min(stretch.end, from + steps));
}

}  // namespace

absl::StatusOr<Schedule> StepOfPlan(const v1::GetJobResponse& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const ReplayPlan plan, PlanOf(job));
  return BuildSchedule(*plan.job.method, plan.options,
                       {.first = 0, .count = plan.job.microbatches});
}

absl::StatusOr<Topology> TopologyOfPlan(const v1::GetJobResponse& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const ReplayPlan plan, PlanOf(job));
  return plan.options.topology;
}

absl::StatusOr<ComparedSteps> CompareWithPrediction(const v1::GetJobResponse& job,
                                                    const Timeline& measured) {
  PENSTOCK_ASSIGN_OR_RETURN(const ReplayPlan plan, PlanOf(job));
  if (plan.job.order == Order::kRecorded) {
    return absl::FailedPreconditionError(
        "what is predicted is the static order, and the job's pipeline.order is recorded");
  }
  if (measured.workers != plan.options.topology.workers) {
    return absl::FailedPreconditionError(
        absl::StrCat("the timeline is of ", measured.workers, " workers and the job's plan of ",
                     plan.options.topology.workers, "; it was split again meanwhile, ask again"));
  }
  const WholeSteps whole = WholeStepsOf(measured, plan.options, plan.cuts);
  if (whole.count() == 0) {
    return absl::FailedPreconditionError("the timeline has no whole step");
  }
  // The first of them may have begun before the timeline does.
  const int64_t microbatches = plan.job.microbatches;
  const bool from_first =
      EntryOf(measured, plan.options.topology, whole.first * microbatches).has_value();
  ComparedSteps compared = {.steps = whole.count() - (from_first ? 0 : 1),
                            .first_step = whole.first + (from_first ? 0 : 1)};
  if (compared.steps == 0) {
    return absl::FailedPreconditionError("the timeline has no whole step");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const StepTimes measured_times,
                            TimesOf(measured, plan, whole, compared.first_step, compared.steps));

  const Stretch stretch = StretchOf(plan, compared.first_step);
  const bool is_planned = !job.spec().prediction().times().layers().empty();
  compared.source = is_planned ? TimesSource::kPlan : TimesSource::kMeasurements;
  PENSTOCK_ASSIGN_OR_RETURN(
      const SimulationCosts costs,
      is_planned ? CostsOfPlan(job, plan) : MeasuredCosts(measured, plan, stretch, measured_times));
  PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule,
                            ScheduleAround(plan, stretch, compared.first_step, compared.steps));
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult simulated,
                            Simulate(schedule, costs, {.timeline_spans_max = kSimulatedSpansMax}));
  PENSTOCK_ASSIGN_OR_RETURN(
      const StepTimes predicted_times,
      TimesOf(simulated.timeline, plan, WholeStepsOf(simulated.timeline, plan.options, {}),
              compared.first_step, compared.steps));

  compared.measured_step_s = measured_times.MeanSeconds();
  compared.predicted_step_s = predicted_times.MeanSeconds();
  compared.measured = Clipped(measured, measured_times.start_ns, measured_times.end_ns(), 0);
  compared.predicted =
      Clipped(simulated.timeline, predicted_times.start_ns, predicted_times.end_ns(),
              measured_times.start_ns - predicted_times.start_ns);
  return compared;
}

}  // namespace penstock
