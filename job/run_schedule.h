// The schedules of a whole run: one training range for each cut, an evaluation where the cut
// validates.
//
// Coordinator and workers derive them by these functions and compare the digest before the start.
//
// Plain functions without I/O.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "schedule/schedule.h"

namespace penstock {

// The microbatches of the steps after `from_step` up to `to_step`.
MicrobatchRange RangeOfSteps(const ResolvedJob& job, int64_t from_step, int64_t to_step);

// Digest over what builds must agree upon (job/agreement.h) and the schedules of all ranges from `first_step`
// through `cuts`, in the order they are run.
// REQUIRES: `cuts` are CutsOf(spec, first_step, ...).
// Errors: those of BuildSchedule.
absl::StatusOr<std::string> DigestOfRun(const ResolvedJob& job, const ScheduleOptions& options,
                                        int64_t first_step, absl::Span<const Cut> cuts);

}  // namespace penstock
