// Partitions of a chain into the stages of a 1F1B pipeline whose workers have limited memory: DawnPiper's, and the best.
//
// Both minimise the longest of all stages and links under planner/dawnpiper/stage_memory.h, which says what a stage
// keeps, recomputes and swaps.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/dawnpiper/stage_memory.h"

namespace penstock {

enum class ChainPlanner : uint8_t {
  kDawnPiper,  // by halves, each cut between its balanced ones
  kBestCuts,   // all cuts
};

struct ChainPartition {
  std::vector<int> ends;                 // by stage: one past its last node
  std::vector<StageCharge1F1B> charges;  // by stage
  double period_s = 0;
  int64_t stages_charged = 0;  // that the search has looked at
};

// Where the cut between two halves of the stages is looked for.
enum class CutSearch : uint8_t {
  kInRange,  // between the two balanced cuts (planner/dawnpiper/cut_range.h): DawnPiper
  kAnywhere,
};

// Cuts the stages into halves, the first one smaller where their number is odd, and each of these likewise, down to single
// stages. Every cut of the range is tried.
// Errors: InvalidArgument: more stages than places to end them; FailedPrecondition: nothing that it tried fits.
absl::StatusOr<ChainPartition> PartitionByHalves(const StageMemory& memory,
                                                 CutSearch search = CutSearch::kInRange);

// Returns the best partition, by dynamic programming over all cuts: none is faster whose stages choose their tensors
// by StageMemory::Choose. Among equals the one whose stages have the smallest sum of squares.
// Errors: as above; FailedPrecondition says that none fits.
absl::StatusOr<ChainPartition> BestPartition(const StageMemory& memory);

}  // namespace penstock
