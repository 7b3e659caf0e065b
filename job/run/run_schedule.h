// The schedules of a run: one training range for each cut, an evaluation where the cut validates.
//
// Coordinator and workers derive them by these functions and compare the digest before the start.
//
// Plain functions without I/O.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "schedule/machine.h"
#include "schedule/schedule.h"

namespace penstock {

// The microbatches of the steps after `from_step` up to `to_step`.
MicrobatchRange RangeOfSteps(const ResolvedJob& job, int64_t from_step, int64_t to_step);

// The schedule of the steps after `from_step` up to `to_step`: the method's, or before it begins
// the synchronous one. `options`: those of the method. REQUIRES: pipeline.synchronous_steps is not
// inside the range.
// Errors: those of BuildSchedule.
absl::StatusOr<Schedule> ScheduleOfSteps(const ResolvedJob& job, const ScheduleOptions& options,
                                         int64_t from_step, int64_t to_step);

// Ranges with equal keys differ by a shift only, so what holds for one of them holds for all. Where
// weights are sampled no range is like another.
struct RangeKey {
  bool drains = false;
  int64_t steps = 0;
  int64_t drawn_from = 0;  // the step that such a range begins after
  auto operator<=>(const RangeKey&) const = default;
};
RangeKey KeyOfSteps(const ResolvedJob& job, int64_t from_step, int64_t to_step);

// The lateness of a stage's gradients once the method's pipeline is full, in updates of the stage.
struct StageLateness {
  int64_t staleness = 0;  // the most of any microbatch
  int64_t drift =
      0;  // the most between a forward and its backward where both read the current weights
  // A rescheduled rate is divided by a power of this. Where all gradients of the stage are equally late (an
  // update for each microbatch, or weights of a fixed age) it is their staleness, as Ajanthan et al. count
  // (arXiv 2505.01099). Where an update of stage i of P, from 1, holds N microbatches, which are not, it is
  // PipeMare's (2 (P - i) + 1) / N (Yang et al., MLSys 2021, arXiv 1910.05124). With replicas the microbatches that a
  // stage is ahead by (schedule/warm_up.h) take the place of P - i.
  double rate_delay = 0.0;
  friend bool operator==(const StageLateness&, const StageLateness&) = default;
};

// Counts them by stage, as the verifier does over a range that is long enough, whatever the job's
// own ranges are; where delays are sampled, the most that they may be.
// Errors: those of BuildSchedule and Verify.
absl::StatusOr<std::vector<StageLateness>> LatenessOf(const ResolvedJob& job,
                                                      const ScheduleOptions& options);

// Returns the verifier's counts, by stage, over the whole run if it is not cut short. Peaks are what a stage must
// have room for: in recorded order those that no order exceeds, while the rest is of the static one.
// `edge_capacity`: messages that an edge can hold.
// REQUIRES: `cuts` are CutsOf(spec, first_step, ...).
// Errors: those of BuildSchedule and Verify.
absl::StatusOr<std::vector<StageCounts>> CountsOfRun(const ResolvedJob& job,
                                                     const ScheduleOptions& options,
                                                     int64_t first_step, absl::Span<const Cut> cuts,
                                                     int32_t edge_capacity = kChannelCapacityMax);

// Digest over what builds must agree upon (job/run/agreement.h) and the schedules of all ranges from `first_step`
// through `cuts`, in the order they are run.
// REQUIRES: `cuts` are CutsOf(spec, first_step, ...).
// Errors: those of BuildSchedule.
absl::StatusOr<std::string> DigestOfRun(const ResolvedJob& job, const ScheduleOptions& options,
                                        int64_t first_step, absl::Span<const Cut> cuts);

}  // namespace penstock
