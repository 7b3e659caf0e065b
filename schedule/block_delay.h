// Block delay: staleness counted over the whole model.
//
// Every update of a stage's weights appends one entry to a single history, the block updates. The
// delay of an update is counted once for every stage r: the entries between the forward on stage r
// of the microbatch it belongs to and the update itself. This is the delay of asynchronous block
// coordinate descent that arXiv 2606.03498 bounds by S^2 - S/2 for PipeDream with S stages.
//
// The predicted delay is taken where time is slots: F and whole backward take one each, a stage's
// update happens with its backward, and the stages of a slot come in ascending order; doing a forward again
// takes no slot. Then
// PipeDream has maximum floor(S^2 - S/2) and mean (S^2-1)/2 exactly (0 for one stage). Only a
// steady state counts: of N microbatches those from N/2 on, without the last 2S. What a run really does is measured
// by block_delay_meter.h.
//
// Where weights are sampled (block_draws.h), the delays are what was sampled, whatever the timing: a
// microbatch is one block update, and a version counts them. Then the prediction is that of the
// distribution, exactly: of microbatches far enough from a cut the maximum is delta, and the mean
// over the stages is (delta + (S-1)/2) / 2.
//
// Where no update is stale (every stage updates from its newest weights), the delay is zero: the block
// updates of a step are then one update of the model. Several pipelines are models of their own, so each has
// a history of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "schedule/catalog/catalog.h"
#include "schedule/schedule.h"

namespace penstock {

// A replay looks at 8 S^3 reads and more: of deeper pipelines only closed forms are told.
inline constexpr int32_t kBlockDelayStagesMax = 128;
// The most actions of a schedule; every one is kept for a while.
inline constexpr int64_t kBlockDelayActionsMax = 2'000'000;

struct BlockDelay {
  int64_t max = 0;
  double mean = 0.0;
  int64_t count = 0;  // (update, stage) pairs
  // The number of pairs by the stage of the forward and by delay. Empty where the delays were not counted one by one, or no
  // update is stale.
  std::vector<std::vector<int64_t>> pairs;
};

// Returns the delay of a schedule, in slots. Time and memory are in proportion to the range; a few times 4S microbatches
// are enough.
// Errors: those of Verify and Simulate; InvalidArgument if the range is too short for a steady state;
// Unimplemented where gradients are late and places have replicas, or stages go there and back; ResourceExhausted if a
// pipeline is deeper than kBlockDelayStagesMax, or the range has more than kBlockDelayActionsMax actions.
absl::StatusOr<BlockDelay> PredictBlockDelay(const Schedule& schedule);

// Does the same for a method, over a range that is long enough and no longer.
// Errors: those of BuildSchedule and Simulate.
absl::StatusOr<BlockDelay> PredictBlockDelay(const Method& method, const ScheduleOptions& options);

}  // namespace penstock
