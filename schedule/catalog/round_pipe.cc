// RoundPipe: the passes of a microbatch are a sequence of slots that goes round the workers,
// through forwards and backwards alike. A model of D parts has S = 2 D - 1 slots, or fewer: the forwards of D
// - 1 parts, forward and backward of the last (the paper fuses them too), and the backwards of the
// others, each with its forward again. The microbatches of a step come in rounds, as many in each
// as there are workers W (all of the step, if it has fewer), and slot i of a round is on worker (g
// + i) mod W, where the next round begins with g + S. So S need not be a multiple of W, and no
// worker has more to do than another because of where it stands.
//
// Here a worker holds the weights of every part that it has a slot of. The sum of a part's
// gradients goes with the rounds, from worker to worker in the order of the microbatches, so that
// it has the bits of one sum; the worker of the last round makes the update and gives the weights
// to the others. (The paper keeps weights and sums with the host.) A slot there may pass several parts, as in the
// paper's asymmetric split, because a forward takes less time than a backward with its forward again: with n parts in each
// but the last, S = ceil((D - 1) / n) + D. (In the paper the cuts there need not be among those back.)
//
// Where weights are streamed a worker keeps those of the parts that it updates alone, and gets those of a slot just before it
// (streamed_weights.h); or no weights at all, which wait in its file.
//
// With slots of one length, messages, sums and copies for nothing, M microbatches in rounds of W,
// slot k of a step (counted over its rounds) begins k slots after its first: its microbatches come
// one slot after another, those of slot k - 1 too, and the worker's slot before, k - W, has just
// done its last. The last of the RS slots, R = M / W, so ends after RS - 1 + W:
//   step              MS / W + W - 1 slots, whatever the remainder of S by W
//   bubble            W (W - 1) / (M S + W (W - 1)), the paper's
// A step of M < W microbatches takes S + M - 1. Both hold where R is for nothing, so that a worker
// that waits for a gradient has nothing to begin with; else a step may be shorter by what it begins
// with, which it is not if ceil((D - 1) / n) >= W - 1, where every worker's first slot is a forward. That the sum of a
// round is there when the next one goes on with it, S - W slots later, takes S >= W.
//   weight versions   1 of each part; staleness 0
//
// roundpipe-async is the paper's asynchronous optimizer: step t reads the weights that were there before the update of
// step t - 1, so the slots of a step need not wait for those updates, and its rounds follow those of the step before. As
// all of a slot's weights must be of one age, wherever it is, they are streamed, and the worker that updates a part keeps
// two versions.
// A step begins with the first pipeline, as every step does, so slot 0 of the next one is on worker 0 when that is free:
//   step              the time of W ceil(RS / W) passes, for M >= W; no bubble if W divides RS
//   weight versions   2 of each part where it is updated; staleness 1, 0 for the first step of a range
// W(t+1) = W(t) - rate * gradient(W(t-1)), as with pipedream-2bw.
//
// Luo et al., "RoundPipe", 2026, arXiv 2604.27085.
#include <vector>

#include "absl/types/span.h"
#include "schedule/catalog/schedules.h"
#include "schedule/streamed_weights.h"

namespace penstock {
namespace {

// The passes of a round's microbatches on the stages that share a slot.
void AddSlot(const Topology& topology, absl::Span<const WeightSlot> slot, ActionList& list) {
  const MicrobatchRange round = slot.front().microbatches;
  for (int64_t m = round.first; m < round.end(); ++m) {
    for (const WeightSlot& of : slot) {
      if (topology[of.stage].forward) Forward(list, of.stage, m);
      if (topology[of.stage].backward) Backward(list, of.stage, m);
    }
  }
}

// Adds the slots of the step that begins with microbatch `first` and in tick `tick`.
void AddSlots(const Topology& topology, int64_t first, int64_t tick,
              std::vector<WeightSlot>& slots) {
  const Topology::Rounds& rounds = topology.rounds;
  for (int64_t m = first; m < first + rounds.step; m += rounds.microbatches) {
    for (int32_t place = 0; place < topology.depth(); ++place) {
      const StageId stage = topology.StageAt(place, m);
      slots.push_back({stage, {m, rounds.microbatches}, tick + topology[stage].slot});
    }
    tick += topology.slots();
  }
}

}  // namespace

Program RoundPipeAsync(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const Topology& topology = options.topology;
  const int64_t step = topology.rounds.step;
  const int64_t slots_of_step = step / topology.rounds.microbatches * topology.slots();
  const int64_t ticks =
      (slots_of_step + topology.workers - 1) / topology.workers * topology.workers;
  return ProgramOfSteps(range.count / step, step, [&](int64_t steps) {
    std::vector<WeightSlot> slots;
    for (int64_t i = 0; i < steps; ++i) {
      AddSlots(topology, range.first + i * step, i * ticks, slots);
    }
    return StreamedSlots(topology, worker, slots, {.updates_at_once = true});
  });
}

Program RoundPipe(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  const Topology& topology = options.topology;
  const int64_t step = options.microbatches_per_step;
  Program program{.repeats = range.count / step, .shift = step};
  ActionList& list = program.period;
  std::vector<WeightSlot> slots;
  AddSlots(topology, range.first, /*tick=*/0, slots);
  // A norm of all gradients, and sums of those of shared parameters, come before any update.
  const bool updates_at_once =
      topology.weights_in_file && !options.global_norm && topology.groups.empty();
  if (topology.streams_weights) {
    list = StreamedSlots(topology, worker, slots, {.updates_at_once = updates_at_once});
  } else {
    for (size_t first = 0, end = 0; first < slots.size(); first = end) {
      while (end < slots.size() && slots[end].tick == slots[first].tick) ++end;
      if (topology.worker(slots[first].stage) != worker) continue;
      AddSlot(topology, absl::MakeConstSpan(slots).subspan(first, end - first), list);
    }
  }
  if (!updates_at_once) UpdateAtEnd(list, topology, worker);
  return program;
}

}  // namespace penstock
