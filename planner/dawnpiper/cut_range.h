// CutRange: between which nodes DawnPiper looks for the cut between two neighbouring stages (arXiv 2505.05856).
//
// The paper's theorem narrows where the best cut between two adjacent stages is. Our reading of it, since the statement
// itself is not before us: the cut lies between the compute-balanced one, with which the slower side is as fast as can be,
// and the memory-balanced one, with which the side that needs more of its memory, everything kept, needs as little as can
// be.
//
// That is exact where what lacking bytes cost is one rule for both stages: T = C + h(M), h never falling, equal limits. Beyond both
// points one side has the longer work and the larger need; both only grow there, and at the nearer point neither
// side has more of either. (Nothing kept but what fits is such a rule: h is 0 or infinite.) It is no theorem where the stages pay
// unlike prices for a byte, such as with unlike tensors, microbatches in flight or links, and where bytes that cannot be
// freed lie unevenly; tests count how often it fails then.
//
// Pure functions.
#pragma once

#include "planner/dawnpiper/stage_memory.h"

namespace penstock {

// Cuts from `least` to `most`, both included; each cut is in front of that node.
struct CutRange {
  int compute_balanced = 0;
  int memory_balanced = 0;
  int least() const {
    return compute_balanced < memory_balanced ? compute_balanced : memory_balanced;
  }
  int most() const {
    return compute_balanced < memory_balanced ? memory_balanced : compute_balanced;
  }
};

// The nodes from `first` up to `end`, for `left` stages from `place` on and `right` behind them. Of several stages,
// work counts by the sum of their speeds, and memory by the means of their in-flight microbatches and versions.
struct CutBetween {
  int first = 0;
  int end = 0;
  int place = 0;
  int left = 1;
  int right = 1;
};

// REQUIRES: there are `left` + `right` nodes or more, and a cut that leaves each side enough.
CutRange CutRangeOf(const StageMemory& memory, const CutBetween& between);

}  // namespace penstock
