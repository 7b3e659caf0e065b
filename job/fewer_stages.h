// Fewer stages for a job whose weights do not depend on their number.
//
// Pure functions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// Returns whether the job trains to the same weights, bit for bit, on any number of stages with any split: its method drains
// at every step, and has one pipeline whose stages have alike replicas.
bool AnyStagesAreAlike(const ResolvedJob& job);

// Returns the job with the most stages, `stages_min` of them at least, that `workers` workers can hold. It says no split and
// no prediction any more. REQUIRES: `job` is `spec`, resolved, and the spec says how many stages it has.
// Errors: FailedPrecondition saying why there is none.
absl::StatusOr<v1::JobSpec> WithFewerStages(const v1::JobSpec& spec, const ResolvedJob& job,
                                            int64_t workers, int64_t stages_min);

}  // namespace penstock
