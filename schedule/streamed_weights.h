// Streamed weights: where the messages with weights stand, there and back, if a worker keeps only those of the parts that
// it updates (Topology::streams_weights).
//
// A slot is the passes of a round's microbatches on a stage. Slots follow each other round the workers, one pass of each
// in a tick: microbatch i of a slot is passed in tick + i. A worker asks for the weights of its next slot when it begins
// a slot, gets them before the next one's first pass, and drops them after its last. So it has the weights of two slots of
// others at most, and they travel while it passes a slot. The first slots of a list are asked for at its beginning. The
// worker that has the weights answers after what it passes in the tick in which it is asked, so that nobody waits for long
// where passes take the same time.
//
// A plain function.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "schedule/program.h"
#include "schedule/topology.h"

namespace penstock {

struct WeightSlot {
  StageId stage;
  MicrobatchRange microbatches;
  int64_t tick = 0;
};

// The list of `worker`: passes, and messages with weights. `slots` are those of all workers, by tick. `forwards_only`:
// of an evaluate range. REQUIRES: the topology streams weights.
ActionList StreamedSlots(const Topology& topology, WorkerId worker,
                         absl::Span<const WeightSlot> slots, bool forwards_only);

}  // namespace penstock
