// FinalIfDiskIsFull: turns "out of space" into an error that nobody retries, with advice on what to do.
//
// A plain function.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// A disk that is full is not cured by asking again, as other exhausted resources are: ResourceExhausted of a disk becomes
// FailedPrecondition, with `advice` on what to do. Other statuses stay.
absl::Status FinalIfDiskIsFull(const absl::Status& status, absl::string_view advice);

}  // namespace penstock
