#include "schedule/block_delay.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/block_draws.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"

namespace penstock {
namespace {

// The theory knows no full channel.
constexpr int32_t kMessagesMax = 1'000'000;

// A forward, or the update that takes in a microbatch, at its place in the history.
struct Event {
  int64_t time;
  int32_t stage;
  bool is_update;
  int64_t microbatch;  // for an update, that of the W that led to it

  // A stage does one thing after the other: what starts when an update ends comes after it.
  std::tuple<int64_t, int32_t, bool> Order() const { return {time, stage, !is_update}; }
};

MicrobatchRange SteadyState(MicrobatchRange range, int64_t stages) {
  const int64_t first = range.first + range.count / 2;
  return {first, range.end() - 2 * stages - first};
}

// What the forward of a microbatch on one stage had before it.
struct Seen {
  int64_t history = -1;  // block updates; -1 before the forward
  int64_t own = 0;       // of them, updates of this stage
};

// Replays the histories, one for each pipeline of `depth` stages. An update that holds several microbatches
// is one entry with an event for each.
BlockDelay Replay(std::vector<Event> events, int32_t stages, int32_t depth,
                  MicrobatchRange counted) {
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.Order() < b.Order(); });
  std::map<int64_t, std::vector<Seen>> by_microbatch;  // by stage of its pipeline
  std::vector<int64_t> own(stages);
  std::vector<int64_t> histories(stages / depth);
  int64_t sum = 0;
  bool stale = false;
  BlockDelay delay;
  delay.pairs.resize(depth);
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    std::vector<Seen>& seen =
        by_microbatch.try_emplace(event.microbatch, std::vector<Seen>(depth)).first->second;
    int64_t& history = histories[event.stage / depth];
    Seen& here = seen[event.stage % depth];
    if (!event.is_update) {
      here = {history, own[event.stage]};
      continue;
    }
    const bool complete =
        std::all_of(seen.begin(), seen.end(), [](const Seen& s) { return s.history >= 0; });
    stale |= complete && here.own != own[event.stage];
    if (complete && event.microbatch >= counted.first && event.microbatch < counted.end()) {
      for (int32_t stage = 0; stage < depth; ++stage) {
        const int64_t late = history - seen[stage].history;
        delay.max = std::max(delay.max, late);
        sum += late;
        std::vector<int64_t>& pairs = delay.pairs[stage];
        if (static_cast<int64_t>(pairs.size()) <= late) pairs.resize(late + 1);
        ++pairs[late];
      }
      delay.count += depth;
    }
    const bool same_update_goes_on =
        i + 1 < events.size() && events[i + 1].Order() == event.Order();
    if (same_update_goes_on) continue;
    ++history;
    ++own[event.stage];
  }
  if (!stale) return {.count = delay.count};
  if (delay.count > 0) delay.mean = static_cast<double>(sum) / static_cast<double>(delay.count);
  return delay;
}

// The forwards and updates of a timeline, each at the time that `time_of` gives its span. (For an
// update in slots that is the time of the last W before it.)
template <typename TimeOf>
std::vector<Event> EventsOf(const Timeline& timeline, int32_t stages, TimeOf time_of) {
  std::vector<Span> spans;
  for (const Span& span : timeline.spans) {
    if (span.lane == Lane::kCompute && span.action.index < stages) spans.push_back(span);
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
  std::vector<Event> events;
  std::vector<std::vector<Span>> accumulated(stages);  // W since the last STEP
  for (const Span& span : spans) {
    const int32_t stage = span.action.index;
    if (span.action.op == Op::kForward) {
      events.push_back({time_of(span, nullptr), stage, false, span.action.microbatch});
    } else if (span.action.op == Op::kBackwardWeight) {
      accumulated[stage].push_back(span);
    } else if (span.action.op == Op::kStep && !accumulated[stage].empty()) {
      for (const Span& weight : accumulated[stage]) {
        const int64_t time = time_of(span, &accumulated[stage].back());
        events.push_back({time, stage, true, weight.action.microbatch});
      }
      accumulated[stage].clear();
    }
  }
  return events;
}

// Those of the distribution.
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

BlockDelay DrawnBlockDelay(const WeightPolicy& policy, int32_t stages, MicrobatchRange range) {
  const BlockDraws draws(policy.seed, policy.lag, stages);
  BlockDelay delay;
  int64_t sum = 0;
  for (int64_t k = range.count / 2; k < range.count; ++k) {
    for (int32_t stage = 0; stage < stages; ++stage) {
      const int64_t drawn = draws.DelayOf(range.first + k, stage, k);
      delay.max = std::max(delay.max, drawn);
      sum += drawn;
      ++delay.count;
    }
  }
  if (delay.count > 0) delay.mean = static_cast<double>(sum) / static_cast<double>(delay.count);
  return delay;
}

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
  constexpr int64_t kSlotNs = 1'000'000'000;
  const auto slot_of = [](const Span& span, const Span* last_weight) {
    return (last_weight == nullptr ? span : *last_weight).start_ns / kSlotNs;
  };
  return Replay(EventsOf(result.timeline, stages, slot_of), stages, depth, counted);
}

absl::StatusOr<BlockDelay> PredictBlockDelay(const Method& method, const ScheduleOptions& options) {
  if (method.synchronous) return BlockDelay();
  PENSTOCK_RETURN_IF_ERROR(CheckDepth(options.topology));
  ScheduleOptions in_slots = options;
  in_slots.send_gradient_early = false;  // a slot has a whole backward
  const int64_t update = method.updates_each_microbatch ? 1 : options.microbatches_per_step;
  const int64_t updates = (8 * int64_t{options.topology.stages()} + 1) / update + 3;
  const MicrobatchRange range = {0, updates * update};
  PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule, BuildSchedule(method, in_slots, range));
  return PredictBlockDelay(schedule);
}

BlockDelay MeasureBlockDelay(const Timeline& timeline, int32_t stages, int32_t pipelines) {
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = -1;
  for (const Span& span : timeline.spans) {
    if (span.lane != Lane::kCompute || span.action.op != Op::kForward) continue;
    first = std::min(first, span.action.microbatch);
    last = std::max(last, span.action.microbatch);
  }
  if (last < 0) return BlockDelay();
  const auto time_of = [](const Span& span, const Span* last_weight) {
    return last_weight == nullptr ? span.start_ns : span.end_ns;
  };
  const int32_t depth = stages / pipelines;
  return Replay(EventsOf(timeline, stages, time_of), stages, depth,
                SteadyState({first, last + 1 - first}, depth));
}

}  // namespace penstock
