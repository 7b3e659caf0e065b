// MeasureCopyRate: how fast a worker's offloaded stashes go to the host and come back, by measurement.
//
// Plans need it to choose between keeping, offloading and recomputing. It is the rate of the slower direction, through the very
// store that runs use (compute/offload_store.h), since pinned memory, a disk, and a disk that several workers share differ
// a hundredfold.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include "absl/status/statusor.h"
#include "compute/backend.h"
#include "compute/offload_store.h"

namespace penstock {

// What one stash of a measurement has; the store needs room for one.
inline constexpr int64_t kCopyRateBytes = int64_t{16} << 20;

// Returns bytes per second. Takes memory of `backend` for one stash meanwhile, and as long as four stashes take each way: some
// hundred milliseconds on a fast disk. Errors: those of the store; FailedPrecondition (its copies have no times).
absl::StatusOr<double> MeasureCopyRate(Backend& backend, OffloadStore& store);

}  // namespace penstock
