// The checks of a job that need nothing but its fields: those that its keys say of themselves
// (job/keys/check_keys.h), and those of several keys together, such as divisibility.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// An InvalidArgument about one key, "training.steps: WHAT".
absl::Status InvalidKey(absl::string_view key, absl::string_view what);

// REQUIRES: defaults are filled in. Errors: InvalidArgument naming the first key that is wrong.
absl::Status CheckFields(const v1::JobSpec& spec);

}  // namespace penstock
