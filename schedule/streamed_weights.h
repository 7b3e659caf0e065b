// Streamed weights: where the messages with weights stand, there and back, if a worker keeps only those of the parts that
// it updates (Topology::streams_weights).
//
// A slot is the passes of a round's microbatches on a stage, or on several that share it (StageWiring::slot). Slots follow
// each other round the workers, one pass of each
// in a tick: microbatch i of a slot is passed in tick + i. A worker asks for the weights of its next slot when it begins
// a slot, gets them before the next one's first pass, and drops them after its last. So it has the weights of two slots of
// others at most, and they travel while it passes a slot. The first slots of a list are asked for at its beginning. The
// worker that has the weights answers after what it passes in the tick in which it is asked, so that nobody waits for long
// where passes take the same time.
//
// A sum of gradients leaves its worker in the last slot that this begins before the one that goes on with the sum, right
// after the first pass. So the worker that gets it has begun its slot before: pass by pass, all slots of a round hang on
// those before them. It has then taken the sum for that one, and never has two that wait.
//
// Where weights live in files, a worker loads those of the slots whose part it updates in the same way, and reads those that
// it sends between the question and the answer, for which it takes a tick if there is one. A part is then updated right after its
// last slot of the step, as it is where steps do not wait for updates, so that its gradients are gone before the next part's come, unless updates wait for the gradients
// of all.
//
// A plain function.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/topology.h"

namespace penstock {

// Of one stage; stages that share a slot have one each, of the same tick.
struct WeightSlot {
  StageId stage;
  MicrobatchRange microbatches;
  int64_t tick = 0;
};

// What a list has beside the passes.
struct StreamedSlotsOptions {
  bool forwards_only = false;    // of an evaluate range
  bool updates_at_once = false;  // a part after its last slot of a step
};
// The list of `worker`: passes, messages with weights, and SEND_W. `slots` are those of all workers, by tick. REQUIRES: the
// topology streams weights.
ActionList StreamedSlots(const Topology& topology, WorkerId worker,
                         absl::Span<const WeightSlot> slots, const StreamedSlotsOptions& options);

}  // namespace penstock
