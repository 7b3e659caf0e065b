#include "schedule/message_flows.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "schedule/placements.h"

namespace penstock {
namespace {

using PassKey = std::tuple<ActionKind, int32_t, int64_t>;  // operation, stage, microbatch

// The passes of a timeline that give or take messages, each in the order of their start.
std::map<PassKey, std::vector<const Span*>> PassesOf(const Timeline& timeline) {
  std::map<PassKey, std::vector<const Span*>> passes;
  for (const Span& span : timeline.spans) {
    const Action& action = span.action;
    const bool passes_on =
        action.kind == ActionKind::kForward || action.kind == ActionKind::kBackwardInput;
    if (span.lane != Lane::kCompute || !passes_on) continue;
    passes[{action.kind, action.index, action.microbatch}].push_back(&span);
  }
  for (auto& [key, spans] : passes) {
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span* a, const Span* b) { return a->start_ns < b->start_ns; });
  }
  return passes;
}

Topology StraightPipelineOf(const Timeline& timeline) {
  int32_t stages = 1;
  for (const Span& span : timeline.spans) {
    if (HasMicrobatch(span.action.kind)) stages = std::max(stages, span.action.index + 1);
  }
  return StraightPipeline(stages);
}

// Returns the stage that takes what the pass has made; -1: none.
StageId TakerOf(const Action& action, const Topology& topology) {
  if (action.index >= topology.stages()) return StageId(-1);
  const EdgeKind kind =
      action.kind == ActionKind::kForward ? EdgeKind::kActivation : EdgeKind::kGradient;
  return topology.To(kind, action.stage(), action.microbatch);
}

}  // namespace

std::vector<MessageFlow> MessageFlowsOf(const Timeline& timeline, const Topology* topology) {
  const Topology feeds = topology != nullptr ? *topology : StraightPipelineOf(timeline);
  const std::map<PassKey, std::vector<const Span*>> passes = PassesOf(timeline);
  std::vector<MessageFlow> flows;
  for (const auto& [key, givers] : passes) {
    const Action& given = givers.front()->action;
    const StageId stage = TakerOf(given, feeds);
    if (stage.value < 0) continue;
    const auto takers = passes.find({given.kind, stage.value, given.microbatch});
    if (takers == passes.end()) continue;
    auto next = givers.begin();
    for (const Span* taker : takers->second) {
      const auto first_after = std::find_if(next, givers.end(), [taker](const Span* giver) {
        return giver->start_ns > taker->start_ns;
      });
      if (first_after == next) continue;  // what it took is not in the timeline
      flows.push_back({.giver = *std::prev(first_after), .taker = taker});
      next = first_after;
    }
  }
  return flows;
}

}  // namespace penstock
