// ActivationBytes: what the passes of one microbatch through a stage take from the pool and give back.
//
// Follows the order in which Stage acquires and drops blocks, so that a worker's program, walked with these
// numbers (planner/cost/memory_plan.h), tells the most memory it will ever need before anything runs.
//
// Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/layer.h"

namespace penstock {

// Beside what was there before the pass: at most while it runs, and when it is done.
struct PassBytes {
  int64_t most = 0;
  int64_t left = 0;  // negative: it gave back more than it took
};

// A tensor that the stage is given counts as there before the pass that takes it over, and what a pass
// returns is left by it.
struct ActivationBytes {
  int64_t boundary = 0;  // of a tensor that crosses into or out of the stage
  // An embedding's F takes the token ids, a head's F and R for their own time the targets.
  PassBytes forward, recompute, backward_input, backward_weight;
};

struct ActivationShape {
  const std::vector<TapeNeeds>& needs;  // by layer
  int64_t boundary = 0;                 // bytes
  int64_t tokens = 0;
  bool has_embedding = false;
  bool has_head = false;
  bool recomputes = false;  // F leaves its input, R the rest
};

ActivationBytes ActivationBytesOf(const ActivationShape& shape);

}  // namespace penstock
