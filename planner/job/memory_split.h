// SplitForMemory: a candidate's layers cut for workers of limited memory, with recomputation in the stages that need it.
//
// The cuts are those of planner/dawnpiper/ under its costs of a stage at its place: DawnPiper's, or the best. What a job can
// say today is what is chosen from: a stage keeps everything, or recomputes all of it. A plan that swaps tensors,
// or recomputes some, has no job to be lowered to. The result is judged as any candidate is, by its simulated step and its
// memory to the byte; where a worker lacks memory by that count, the cuts are made again for as much less.
//
// Pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "planner/dawnpiper/chain_partition.h"
#include "planner/job/candidate.h"

namespace penstock {

// `candidate` says what does not change: method, stages, microbatches, order; its choice of recomputation is replaced.
// `rejected` says why there is none: also that stages have replicas or share workers.
// Errors: those of JudgeCandidate.
absl::StatusOr<JudgedCandidate> SplitForMemory(const PlanningInput& input,
                                               const Candidate& candidate, ChainPlanner planner);

}  // namespace penstock
