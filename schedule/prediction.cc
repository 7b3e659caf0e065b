#include "schedule/prediction.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr double kSecondsPerNs = 1e-9;

// Microbatches of the simulated run, in steps: enough for the period to settle.
constexpr int64_t kSimulatedSteps = 16;

// 0 of none: there and back a stage does some of the passes.
int64_t MedianNs(std::vector<int64_t>& durations_ns) {
  if (durations_ns.empty()) return 0;
  const auto middle = durations_ns.begin() + static_cast<int64_t>(durations_ns.size() / 2);
  std::nth_element(durations_ns.begin(), middle, durations_ns.end());
  return *middle;
}

// The median; the time above it goes to `excess_ns`.
double MedianSeconds(std::vector<int64_t>& durations_ns, int64_t& excess_ns) {
  const int64_t median_ns = MedianNs(durations_ns);
  for (const int64_t duration : durations_ns) excess_ns += duration - median_ns;
  return static_cast<double>(median_ns) * kSecondsPerNs;
}

// Durations of one stage's compute actions.
struct StageDurations {
  std::vector<int64_t> forward, recompute, backward_input, backward_weight, update;

  std::vector<int64_t>* Of(ActionKind kind) {
    switch (kind) {
      case ActionKind::kForward:
        return &forward;
      case ActionKind::kRecompute:
        return &recompute;
      case ActionKind::kBackwardInput:
        return &backward_input;
      case ActionKind::kBackwardWeight:
        return &backward_weight;
      case ActionKind::kUpdate:
        return &update;
      default:
        return nullptr;
    }
  }
};

// The time that one worker spent in a window on other things than computing and waiting.
struct WorkerOverhead {
  int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
  int64_t computing_or_waiting_ns = 0;

  int64_t ns() const {
    return last_ns < first_ns ? 0 : last_ns - first_ns - computing_or_waiting_ns;
  }
};

// The time that messages were on their way, on one link. A clock of one worker that is ahead of the other's makes
// one direction look slow and the other fast by as much, so the mean of both is right.
class LinkLatency {
 public:
  void Add(bool forward, int64_t latency_ns) {
    (forward ? forward_ : backward_).push_back(latency_ns);
  }

  // 0 if nobody waited for a message.
  double Seconds() {
    double sum_ns = 0.0;
    int directions = 0;
    for (std::vector<int64_t>* latencies : {&forward_, &backward_}) {
      if (latencies->empty()) continue;
      sum_ns += static_cast<double>(MedianNs(*latencies));
      ++directions;
    }
    return directions == 0 ? 0.0 : std::max(0.0, sum_ns / directions) * kSecondsPerNs;
  }

 private:
  std::vector<int64_t> forward_, backward_;
};

// The link of an activation or a gradient; -1 of others.
int32_t LinkOf(const Action& action, const Topology& topology) {
  const int32_t number = topology.EdgeOf(action);
  if (number < 0) return -1;
  const Edge& edge = topology.edges[number];
  const bool between_parts = edge.kind == EdgeKind::kActivation || edge.kind == EdgeKind::kGradient;
  return between_parts ? edge.link : -1;
}

// A message's latency shows where somebody waited for it: from the end of
// its SEND to the end of that wait.
std::vector<LinkCosts> MeasureLinks(const Timeline& timeline, const Topology& topology,
                                    int64_t start_ns, int64_t end_ns) {
  const int32_t count = topology.links();
  std::map<std::tuple<bool, int32_t, int64_t>, int64_t> sent;  // direction, link, microbatch: when
  const auto in_window = [&](const Span& span) {
    return span.start_ns >= start_ns && span.end_ns <= end_ns;
  };
  for (const Span& span : timeline.spans) {
    if (RunsBeside(span.lane) || !IsSend(span.action.kind) || !in_window(span)) continue;
    const bool forward = span.action.kind == ActionKind::kSendActivation;
    const int32_t link = LinkOf(span.action, topology);
    if (link < 0) continue;
    int64_t& end = sent[{forward, link, span.action.microbatch}];
    end = std::max(end, span.end_ns);
  }
  std::vector<LinkLatency> latencies(std::max(count, 0));
  for (const Span& span : timeline.spans) {
    if (span.wait != Wait::kInput || !IsReceive(span.action.kind) || !in_window(span)) continue;
    const bool forward = span.action.kind == ActionKind::kRecvActivation;
    const int32_t link = LinkOf(span.action, topology);
    const auto found = sent.find({forward, link, span.action.microbatch});
    if (found == sent.end() || link < 0 || link >= count) continue;
    latencies[link].Add(forward, span.end_ns - found->second);
  }
  std::vector<LinkCosts> links;
  links.reserve(latencies.size());
  for (LinkLatency& latency : latencies) links.push_back({.latency_s = latency.Seconds()});
  return links;
}

// The number of actions that all workers together perform in `steps` steps.
absl::StatusOr<int64_t> ActionsOfSteps(const Method& method, const ScheduleOptions& options,
                                       int64_t steps) {
  PENSTOCK_ASSIGN_OR_RETURN(
      const Schedule schedule,
      BuildSchedule(method, options, {0, steps * options.microbatches_per_step}));
  // BEGIN_REDUCE has no overhead.
  const auto counted = [](const ActionList& list) {
    return std::count_if(list.begin(), list.end(), [](const Action& action) {
      return action.kind != ActionKind::kBeginReduce;
    });
  };
  int64_t actions = 0;
  for (const Program& program : schedule.programs) {
    actions += counted(program.prologue) + program.repeats * counted(program.period) +
               counted(program.epilogue);
  }
  return actions;
}

}  // namespace

absl::StatusOr<SimulationCosts> MeasureCosts(const Timeline& timeline, const Topology& topology,
                                             int64_t start_ns, int64_t end_ns, int64_t actions) {
  std::vector<StageDurations> durations(topology.stages());
  std::vector<WorkerOverhead> workers(timeline.workers);
  for (const Span& span : timeline.spans) {
    if (span.start_ns < start_ns || span.end_ns > end_ns || RunsBeside(span.lane)) continue;
    WorkerOverhead& worker = workers[span.worker.value];
    worker.first_ns = std::min(worker.first_ns, span.start_ns);
    worker.last_ns = std::max(worker.last_ns, span.end_ns);
    const bool computes = span.lane == Lane::kCompute;
    if (computes || span.lane == Lane::kWait) worker.computing_or_waiting_ns += span.duration_ns();
    if (!computes) continue;
    if (span.action.index < 0 || span.action.index >= topology.stages()) continue;
    if (auto* list = durations[span.action.index].Of(span.action.kind)) {
      list->push_back(span.duration_ns());
    }
  }

  SimulationCosts costs;
  costs.links = MeasureLinks(timeline, topology, start_ns, end_ns);
  int64_t overhead_ns = 0;
  for (int32_t stage = 0; stage < topology.stages(); ++stage) {
    StageDurations& d = durations[stage];
    const StageId id(stage);
    const bool recomputes = topology[id].recomputes;
    const bool lacks_backward =
        topology[id].backward && (d.backward_input.empty() || d.backward_weight.empty());
    if ((topology[id].forward && d.forward.empty()) || lacks_backward ||
        (topology[id].updates && d.update.empty()) || (recomputes && d.recompute.empty())) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the timeline has no forward, backward or update of stage ", stage, " in the window"));
    }
    costs.stages.push_back({.forward_s = MedianSeconds(d.forward, overhead_ns),
                            .backward_input_s = MedianSeconds(d.backward_input, overhead_ns),
                            .backward_weight_s = MedianSeconds(d.backward_weight, overhead_ns),
                            .update_s = MedianSeconds(d.update, overhead_ns)});
    if (recomputes) costs.stages.back().recompute_s = MedianSeconds(d.recompute, overhead_ns);
  }
  for (const WorkerOverhead& worker : workers) overhead_ns += worker.ns();
  overhead_ns = std::max<int64_t>(overhead_ns, 0);
  costs.overhead_s =
      static_cast<double>(overhead_ns) * kSecondsPerNs / static_cast<double>(actions);
  return costs;
}

WholeSteps WholeStepsOf(const Timeline& timeline, const ScheduleOptions& options,
                        absl::Span<const int64_t> cuts) {
  struct Step {
    int64_t end_ns = INT64_MIN;
    int64_t backwards = 0;
  };
  std::map<int64_t, Step> steps;
  for (const Span& span : timeline.spans) {
    if (span.lane != Lane::kCompute || span.action.kind != ActionKind::kBackwardWeight) continue;
    Step& step = steps[span.action.microbatch / options.microbatches_per_step];
    step.end_ns = std::max(step.end_ns, span.end_ns);
    ++step.backwards;
  }
  const int64_t whole = options.microbatches_per_step * options.topology.parts();
  WholeSteps longest, row;
  for (const auto& [number, step] : steps) {
    const bool follows = number == row.first + row.count() &&
                         std::find(cuts.begin(), cuts.end(), number) == cuts.end();
    if (step.backwards != whole || !follows) row = {.first = number};
    if (step.backwards == whole) row.ends_ns.push_back(step.end_ns);
    if (row.count() >= longest.count()) longest = row;
  }
  return longest;
}

absl::StatusOr<StepPrediction> PredictSteps(const Timeline& timeline, const Method& method,
                                            const ScheduleOptions& options) {
  const std::vector<int64_t> ends = WholeStepsOf(timeline, options, {}).ends_ns;
  const int64_t steps = static_cast<int64_t>(ends.size());
  if (steps < 4) {
    return absl::FailedPreconditionError(
        absl::StrCat("the timeline has ", steps, " whole steps; a prediction needs at least 4"));
  }
  const int64_t middle = steps / 2;
  StepPrediction prediction = {
      .steps_measured = steps - middle,
      .measured_step_s = static_cast<double>(ends[steps - 1] - ends[middle - 1]) * kSecondsPerNs /
                         static_cast<double>(steps - middle)};
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t actions, ActionsOfSteps(method, options, middle));
  PENSTOCK_ASSIGN_OR_RETURN(
      const SimulationCosts costs,
      MeasureCosts(timeline, options.topology, timeline.start_ns(), ends[middle - 1], actions));
  prediction.overhead_s = costs.overhead_s;

  const MicrobatchRange range = {0, kSimulatedSteps * options.microbatches_per_step};
  PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule, BuildSchedule(method, options, range));
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult simulated, Simulate(schedule, costs));
  prediction.predicted_step_s =
      simulated.steady_state_period_s * static_cast<double>(options.microbatches_per_step);
  return prediction;
}

}  // namespace penstock
