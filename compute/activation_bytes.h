// ActivationBytes: what the passes of one microbatch through a stage take from the pool and give back.
//
// Walks the steps that the stage itself carries out (compute/pass_plan.h), so that a worker's program, walked with
// these numbers (planner/cost/memory_plan.h), tells the most memory it will ever need before anything runs.
//
// Plain values.
#pragma once

#include <cstdint>

#include "compute/pass_plan.h"

namespace penstock {

// Beside what was there before the pass: at most while it runs, and when it is done.
struct PassBytes {
  int64_t most = 0;
  int64_t left = 0;  // negative: it gave back more than it took
};

// A tensor that the stage is given counts as there before the pass that takes it over, and what a pass
// returns is left by it.
struct ActivationBytes {
  // Of the tensors that cross into and out of the stage; 0 where none does.
  int64_t input = 0, output = 0, grad_input = 0, grad_output = 0;
  int64_t ports =
      0;  // what F, and R, are given of data, which the caller holds as long as they take
  PassBytes forward, recompute, backward_input, backward_weight;
  int64_t stash = 0;  // that can be offloaded between F and I; 0 where F leaves its input alone
};

// `recomputes`: F leaves its input, R the rest.
ActivationBytes ActivationBytesOf(const PassPlan& plan, bool recomputes, bool is_last);

}  // namespace penstock
