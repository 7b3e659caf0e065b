// Computes how long a run takes on devices of given times, by simulating every range between cuts.
//
// The results of a run do not depend on timing, so a loss curve that was trained anywhere can be stamped with these
// times.
//
// Plain functions without I/O.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "schedule/simulate.h"

namespace penstock {

struct RunTime {
  std::vector<double> cut_s;  // by cut: from the start of the run to the cut, validations left out
  double bubble_ratio = 0.0;  // of the whole run, the mean over workers
  std::vector<StageCounts> stages;  // by stage, of the whole run
};

// REQUIRES: `cuts` are CutsOf(spec, first_step, ...).
// Errors: those of BuildSchedule and Simulate.
absl::StatusOr<RunTime> SimulateRun(const ResolvedJob& job, const ScheduleOptions& options,
                                    int64_t first_step, absl::Span<const Cut> cuts,
                                    const SimulationCosts& costs);

}  // namespace penstock
