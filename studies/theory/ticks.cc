#include "studies/theory/ticks.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/types/span.h"
#include "base/check.h"
#include "base/status.h"
#include "schedule/catalog/catalog.h"
#include "schedule/simulate.h"

namespace penstock {
namespace {

constexpr int64_t kTickNs = 1'000'000'000;  // Simulate's unit is the second

// A pipeline whose stages do what they can, tick by tick: the next backward if there is one and, once they are warm, a forward
// came before it; otherwise the next forward.
class EagerPipeline {
 public:
  // Counts are of earlier ticks.
  struct Stage {
    int64_t forwards = 0;
    int64_t backwards = 0;
    bool warm = false;
    bool prefers_backward = false;  // of a warm stage
  };
  // Whether a stage may begin the forward of `microbatch`, which the stage before has done.
  using MayBegin =
      std::function<bool(absl::Span<const Stage> stages, int32_t stage, int64_t microbatch)>;

  EagerPipeline(int32_t stages, int64_t microbatches, MayBegin may_begin)
      : may_begin_(std::move(may_begin)), stages_(stages) {
    sequence_.stages = stages;
    sequence_.microbatches = microbatches;
  }

  TickSequence Run() {
    sequence_.events.reserve(2 * sequence_.updates());
    while (stages_.front().backwards < sequence_.microbatches) {
      const size_t before = sequence_.events.size();
      for (int32_t stage = 0; stage < sequence_.stages; ++stage) Decide(stage);
      PENSTOCK_CHECK(sequence_.events.size() > before);
      Commit(before);
      ++sequence_.ticks;
    }
    return std::move(sequence_);
  }

 private:
  bool ForwardReady(int32_t stage) const {
    const int64_t m = stages_[stage].forwards;
    if (m >= sequence_.microbatches) return false;
    if (stage > 0 && stages_[stage - 1].forwards <= m) return false;
    return may_begin_(stages_, stage, m);
  }

  bool BackwardReady(int32_t stage) const {
    const int64_t m = stages_[stage].backwards;
    if (m >= stages_[stage].forwards) return false;
    return stage + 1 == sequence_.stages || stages_[stage + 1].backwards > m;
  }

  void Decide(int32_t stage) {
    Stage& state = stages_[stage];
    const bool forward = ForwardReady(stage);
    if (BackwardReady(stage) && (!state.warm || state.prefers_backward || !forward)) {
      sequence_.events.push_back({sequence_.ticks, stage, true, state.backwards});
      state.warm = true;
      state.prefers_backward = false;
    } else if (forward) {
      sequence_.events.push_back({sequence_.ticks, stage, false, state.forwards});
      state.prefers_backward = state.warm;
    }
  }

  // Counts what the tick did, from event `first` on, for later ticks to see.
  void Commit(size_t first) {
    for (size_t i = first; i < sequence_.events.size(); ++i) {
      const TickEvent& event = sequence_.events[i];
      Stage& state = stages_[event.stage];
      ++(event.is_backward ? state.backwards : state.forwards);
    }
  }

  const MayBegin may_begin_;
  std::vector<Stage> stages_;
  TickSequence sequence_;
};

}  // namespace

absl::StatusOr<TickSequence> PipeDreamSequence(int32_t stages, int64_t microbatches) {
  PENSTOCK_ASSIGN_OR_RETURN(const Method* const method, FindMethod("pipedream"));
  PENSTOCK_ASSIGN_OR_RETURN(Topology topology, Place(method->placement, stages, stages, 1));
  const ScheduleOptions options{.topology = std::move(topology)};
  PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule,
                            BuildSchedule(*method, options, {0, microbatches}));
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult result,
                            Simulate(schedule, SimulationCosts(),
                                     {.timeline_spans_max = std::numeric_limits<int64_t>::max()}));

  TickSequence sequence{.stages = stages, .microbatches = microbatches};
  sequence.events.reserve(2 * sequence.updates());
  for (const Span& span : result.timeline.spans) {
    if (span.lane != Lane::kCompute) continue;
    const bool is_backward = span.action.kind == ActionKind::kBackwardInput;
    if (!is_backward && span.action.kind != ActionKind::kForward) continue;
    const int64_t tick = span.start_ns / kTickNs;
    sequence.events.push_back({tick, span.action.index, is_backward, span.action.microbatch});
    sequence.ticks = std::max(sequence.ticks, tick + 1);
  }
  std::sort(sequence.events.begin(), sequence.events.end(),
            [](const TickEvent& a, const TickEvent& b) {
              return std::tie(a.tick, a.stage) < std::tie(b.tick, b.stage);
            });
  return sequence;
}

int64_t PipeDreamMicrobatches(int32_t stages, int64_t ticks) {
  return std::max<int64_t>(1, (ticks - 2 * (stages - 1) + 1) / 2);
}

TickSequence EagerPipeDreamSequence(int32_t stages, int64_t microbatches) {
  const auto may_begin = [stages](absl::Span<const EagerPipeline::Stage> done, int32_t stage,
                                  int64_t microbatch) {
    return stage > 0 || microbatch - done[0].backwards < stages;
  };
  return EagerPipeline(stages, microbatches, may_begin).Run();
}

absl::StatusOr<TickSequence> PipeDreamSequence(PipeDreamOrder order, int32_t stages,
                                               int64_t microbatches) {
  if (order == PipeDreamOrder::kStatic) return PipeDreamSequence(stages, microbatches);
  return EagerPipeDreamSequence(stages, microbatches);
}

TickSequence LocalSgdSequence(const LocalSgdShape& shape, int64_t microbatches) {
  const auto may_begin = [&shape](absl::Span<const EagerPipeline::Stage> done, int32_t stage,
                                  int64_t microbatch) {
    const bool first_step = microbatch % shape.round() < shape.replicas;
    if (!first_step) return done[stage].backwards > microbatch - shape.replicas;
    // The barrier: every microbatch of the rounds before has left the first stage.
    return done[0].backwards >= microbatch / shape.round() * shape.round();
  };
  return EagerPipeline(shape.stages, microbatches, may_begin).Run();
}

int64_t LocalSgdMicrobatches(const LocalSgdShape& shape, int64_t ticks) {
  int64_t too_few = 0;
  int64_t enough = ticks;  // a microbatch keeps a stage busy for two ticks
  while (enough - too_few > 1) {
    const int64_t middle = (too_few + enough) / 2;
    (LocalSgdSequence(shape, middle).ticks >= ticks ? enough : too_few) = middle;
  }
  return enough;
}

}  // namespace penstock
