// Defaults and validation of a job.
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// Fills every absent field that has a default (proto/penstock/v1/job.proto states them).
// Idempotent.
void FillDefaults(v1::JobSpec& spec);

// Checks everything that can be known without data or cluster: ranges, required keys, names,
// divisibility, and what the method allows. REQUIRES: defaults are filled in.
// Errors: InvalidArgument,
// "training.microbatches: is 5, which does not divide training.batch (32)".
absl::Status ValidateJob(const v1::JobSpec& spec);

}  // namespace penstock
