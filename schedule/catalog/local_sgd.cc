// LocalSGD through a pipeline: R replicas of the whole model flow through the same S workers. Each takes H
// local steps of one microbatch, then every stage takes the mean of its replicas' weights. A round is a
// step of M = RH microbatches: replica m mod R takes microbatch m of the step, as its local step m div R.
//
// The mean is that of the weights and of the optimizer's state (Yu, Jin and Yang average momentum so, ICML
// 2019, arXiv 1905.03817), so that a round ends with one model that any other method can go on from.
//
// While one replica waits for its own update, the others fill the pipeline, so nothing is stale: a
// replica's forward on a stage comes after the update of its previous local step there. Stage 0 ends a
// round with the round's last backward, so no stage begins the next one before all have averaged.
//
// With S stages, stage s counted from 0, a backward as one piece in a slot, and averaging for nothing:
//   round             2RH + 2(S-1) slots if R >= S, else 2SH + 2(R-1)
//   bubble            (S-1)/(RH+S-1) of a round if R >= S, else 1 - RH/(SH+R-1)
//   activation stash  min(R, S-s) on stage s, over all replicas
//   weight versions   1 of each replica, so R times the weights and the optimizer's state; staleness 0
//
// With a tied weight the last stage's update waits for the first stage's gradient. S div 2 microbatches
// later both stages are about as far, so that the pipeline goes on meanwhile: if R >= S, an odd S has no more
// bubble than without tying, an even S about one slot more for every S/2 microbatches.
//
// Where the updates of a local step wait for the norm of its gradient, all stages meet for it, and every second one
// does a forward before. If R > S they all come in the same slot, and there is no more bubble, but at a round's end.
//
// Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019, arXiv 1805.09767; through a
// pipeline: Ilin and Richtarik, "Demystifying Pipeline Parallelism: First Theory for PipeDream",
// arXiv 2606.03498, appendix E.2.
#include <algorithm>

#include "schedule/catalog/schedules.h"

namespace penstock {
namespace {

// The times at which the microbatches of a round are due on a stage if F and a whole backward take a slot each.
class Slots {
 public:
  Slots(const Topology& topology, int32_t stage)
      : stage_(stage),
        last_(topology.depth() - 1),
        replicas_(topology.pipelines),
        local_step_(2 * std::max<int64_t>(topology.pipelines, topology.depth())) {}

  int64_t Forward(int64_t m) const {
    return stage_ + 2 * (m % replicas_) + local_step_ * (m / replicas_);
  }
  // The microbatch goes on to the last stage, and its gradient comes all the way back.
  int64_t Backward(int64_t m) const { return Forward(m) + 2 * (last_ - stage_) + 1; }

 private:
  const int64_t stage_;
  const int64_t last_;
  const int64_t replicas_;
  const int64_t local_step_;  // slots from one local step of a replica to its next
};

// A stage makes its update this many microbatches after its backward, because it waits for stages before it, whose
// backwards come later: those that share parameters with it, or all for the norm of the gradient. Between a stage and
// one that it shares with, s places behind, the
// delay must not fall, and rise by at most s: then no update waits for a forward that waits for the update. With fewer
// replicas than stages microbatches do not follow each other closely enough for that, and there is no delay.
int64_t UpdateDelay(const Topology& topology, StageId stage, bool global_norm) {
  if (topology.pipelines < topology.depth()) return 0;
  if (global_norm) return (topology[stage].place + 1) / 2;
  bool shares = false;
  int32_t first = topology[stage].place;
  for (const ReduceGroup& group : topology.groups) {
    if (group.quantity != ReduceGroup::Quantity::kGradient) continue;
    first = std::min(first, topology[group.stages.front()].place);
    shares |= std::find(group.stages.begin(), group.stages.end(), stage) != group.stages.end();
  }
  return shares ? (topology[stage].place - first + 1) / 2 : 0;
}

}  // namespace

Program LocalSgd(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const Topology& topology = options.topology;
  const int32_t depth = worker.value;
  const int64_t microbatches = options.microbatches_per_step;
  const auto stage = [&](int64_t m) { return topology.StageAt(depth, range.first + m); };
  const Slots slots(topology, depth);
  const int64_t delay = UpdateDelay(topology, stage(0), options.global_norm);
  // The forward is of another replica, as there are more of them than microbatches between a forward and its update.
  const bool forward_first =
      options.global_norm && topology.pipelines > topology.depth() && depth % 2 == 0;

  Program program{.repeats = range.count / microbatches, .shift = microbatches};
  ActionList& list = program.period;
  int64_t updates = 0;
  const auto update_up_to = [&](int64_t m) {
    for (; updates <= m - delay; ++updates) Update(list, stage(updates));
  };
  for (int64_t forward = 0, m = 0; m < microbatches; ++m) {
    while (forward < microbatches && slots.Forward(forward) < slots.Backward(m)) {
      Forward(list, stage(forward), range.first + forward);
      ++forward;
    }
    if (forward_first) update_up_to(m - 1);
    Backward(list, stage(m), range.first + m);
    if (!forward_first) update_up_to(m);
  }
  update_up_to(microbatches - 1 + delay);
  if (topology.pipelines > 1) Average(list, GroupId(depth));
  return program;
}

}  // namespace penstock
