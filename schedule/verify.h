// Verify: whether a schedule is right, and what it needs.
//
// The coordinator verifies a schedule before it publishes it and every worker before it starts;
// where a schedule came from (catalog, file, search) makes no difference. Because a schedule is
// determinate (run.h), the counts of the report are those that every run of it measures, exactly.
//
// The cost does not grow with the length of the range if the programs have a steady state;
// verify.cc has the argument. Counts of samples do (VerifyLimits).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "schedule/machine.h"
#include "schedule/schedule.h"

namespace penstock {

struct VerifyLimits {
  // The messages that each channel can hold; the worker's mailboxes have this size.
  int32_t channel_capacity = kChannelCapacityMax;
  // Actions that are run one by one, where no steady state shortens the run.
  int64_t actions_max = 50'000'000;
  // Where weights are sampled, staleness and versions are counted over the whole range, which takes time for each
  // microbatch. If false, they are those of a shorter range.
  bool counts_draws = true;
};

struct VerifyReport {
  std::vector<StageCounts> stages;  // by stage, over the whole range
  // The smallest with which no run blocks for ever; of a range too long to be run one by one, the smallest
  // with which its steady state shows, too.
  int32_t channel_capacity_min = 1;
  int64_t actions = 0;      // of all workers
  int64_t actions_run = 0;  // of them, run one by one to find this out
};

// Checks that
//   * every stage has exactly one F, I and W of every microbatch of the range (F alone in an
//     evaluate range), one R where it recomputes, its W in ascending order, and an UPDATE after its last W;
//   * every action finds what it needs, and FLUSH finds nothing left (machine.h);
//   * no run blocks for ever, with the channels there are.
//
// Errors: InvalidArgument (CheckSchedule), FailedPrecondition (a rule is broken, or a deadlock,
// which names every blocked worker and draws the place), ResourceExhausted (more than actions_max
// actions and no steady state, or samples to be counted).
absl::StatusOr<VerifyReport> Verify(const Schedule& schedule, const VerifyLimits& limits = {});

// True if Verify, or Simulate, found a run that blocks for ever.
bool IsDeadlock(const absl::Status& status);

// Verify for people who wrote the schedule themselves: where an action breaks a rule, the error also draws
// the lists around it, its worker's first, with an arrow. Runs every action once more.
absl::StatusOr<VerifyReport> VerifyAndDraw(const Schedule& schedule,
                                           const VerifyLimits& limits = {});

// Comes to the same answer by running every action. Tests compare Verify with it.
absl::StatusOr<VerifyReport> VerifyWithoutShortcut(const Schedule& schedule,
                                                   const VerifyLimits& limits = {});

}  // namespace penstock
