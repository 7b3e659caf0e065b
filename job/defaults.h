// Defaults and validation of a job.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// Sets those absent keys whose defaults are the same for every method.
void FillDefaultsOfAnyMethod(v1::JobSpec& spec);

// Fills every absent field that has a default: the one that its key says (job/keys/key_options.h), or that of the
// job's method. Idempotent.
void FillDefaults(v1::JobSpec& spec);

// Gives another method, the whole of it, to a job that has no defaults filled in yet: a schedule that the job lists
// goes, and so does a prediction, and where the method's paper has an optimizer the job takes it at its own rate,
// unless it is to keep what it has.
void SetMethod(const std::string& method, bool keeps_optimizer, v1::JobSpec& spec);

// Checks everything that can be known without data or cluster: ranges, required keys, names,
// divisibility, and what the method allows. REQUIRES: defaults are filled in.
// Errors: InvalidArgument,
// "training.microbatches: is 5, which does not divide training.batch (32)".
absl::Status ValidateJob(const v1::JobSpec& spec);

}  // namespace penstock
