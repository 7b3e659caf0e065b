#include "schedule/block_delay.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/block_delay_counter.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"

namespace penstock {
namespace {

// The theory knows no full channel.
constexpr int32_t kMessagesMax = 1'000'000;

MicrobatchRange SteadyState(MicrobatchRange range, int64_t stages) {
  const int64_t first = range.first + range.count / 2;
  return {first, range.end() - 2 * stages - first};
}

// The history of a timeline in slots: a forward is in the slot in which it starts, an update in that of the last W before
// it.
std::vector<BlockEvent> EventsInSlots(const Timeline& timeline, int32_t stages) {
  constexpr int64_t kSlotNs = 1'000'000'000;
  std::vector<Span> spans;
  for (const Span& span : timeline.spans) {
    if (MakesBlockEvents(span, stages)) spans.push_back(span);
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
  BlockEventReader reader(stages);
  std::vector<BlockEvent> events;
  std::vector<int64_t> last_weight_ns(stages);
  for (Span& span : spans) {
    int64_t& weight_ns = last_weight_ns[span.action.index];
    if (span.action.kind == ActionKind::kBackwardWeight) weight_ns = span.start_ns;
    if (span.action.kind == ActionKind::kUpdate) span.end_ns = weight_ns;
    reader.Add(span, events);
  }
  for (BlockEvent& event : events) event.time /= kSlotNs;
  SortEvents(events);
  return events;
}

// The delays of the distribution.
BlockDelay DrawnDelays(const WeightPolicy& policy, int32_t stages) {
  const auto delta = static_cast<double>(policy.lag);
  return {.max = policy.lag, .mean = (delta + (stages - 1) / 2.0) / 2.0};
}

absl::Status CheckDepth(const Topology& topology) {
  if (topology.form == Topology::Form::kReplicas) {
    return absl::UnimplementedError(
        "the block delay is that of a model whose parts are updated one microbatch at a time, "
        "which "
        "replicas of stages do not do");
  }
  if (topology.form == Topology::Form::kThereAndBack) {
    return absl::UnimplementedError(
        "the block delay is that of a model whose parts stay on one worker each, which those of "
        "stages that go there and back do not");
  }
  if (topology.depth() <= kBlockDelayStagesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the block delay of ", topology.depth(),
                                                   " stages; at most ", kBlockDelayStagesMax,
                                                   " are replayed"));
}

absl::Status CheckSize(const Schedule& schedule) {
  PENSTOCK_RETURN_IF_ERROR(CheckDepth(schedule.topology));
  int64_t actions = 0;
  for (const Program& program : schedule.programs) actions += program.size();
  if (actions <= kBlockDelayActionsMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the block delay of ", actions,
                                                   " actions; at most ", kBlockDelayActionsMax,
                                                   " are replayed: take a shorter range"));
}

}  // namespace

absl::StatusOr<BlockDelay> PredictBlockDelay(const Schedule& schedule) {
  PENSTOCK_RETURN_IF_ERROR(CheckSchedule(schedule));
  if (schedule.weight_policy.draws()) {
    return DrawnDelays(schedule.weight_policy, schedule.topology.stages());
  }
  const int32_t stages = schedule.topology.stages();
  const int32_t depth = schedule.topology.depth();
  const SimulationCosts slots = {.stages = std::vector<StageCosts>(stages, {.recompute_s = 0.0})};
  PENSTOCK_ASSIGN_OR_RETURN(const VerifyReport verified, Verify(schedule));
  const bool stale =
      std::any_of(verified.stages.begin(), verified.stages.end(),
                  [](const StageCounts& counts) { return counts.staleness.max > 0; });
  if (!stale) return BlockDelay();
  PENSTOCK_RETURN_IF_ERROR(CheckSize(schedule));
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult result,
                            Simulate(schedule, slots,
                                     {.channel_capacity = kMessagesMax,
                                      .timeline_spans_max = std::numeric_limits<int64_t>::max()}));
  const MicrobatchRange counted = SteadyState(schedule.range, depth);
  if (counted.count < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the block delay of ", depth,
                                                   " stages needs a range of more than ", 4 * depth,
                                                   " microbatches, got ", schedule.range.count));
  }
  BlockDelayCounter counter(stages, depth);
  for (const BlockEvent& event : EventsInSlots(result.timeline, stages)) {
    counter.Add(event, counted.first <= event.microbatch && event.microbatch < counted.end());
  }
  return counter.delay();
}

absl::StatusOr<BlockDelay> PredictBlockDelay(const Method& method, const ScheduleOptions& options) {
  if (method.synchronous) return BlockDelay();
  PENSTOCK_RETURN_IF_ERROR(CheckDepth(options.topology));
  ScheduleOptions in_slots = options;
  in_slots.send_gradient_early = false;  // a slot has a whole backward
  // A step, where a method has one or more updates in it.
  const int64_t unit = method.updates_each_microbatch ? 1 : options.microbatches_per_step;
  const int64_t units = (8 * int64_t{options.topology.stages()} + 1) / unit + 3;
  const MicrobatchRange range = {0, units * unit};
  PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule, BuildSchedule(method, in_slots, range));
  return PredictBlockDelay(schedule);
}

}  // namespace penstock
