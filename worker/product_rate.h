// MeasureProductRate: how many floating-point operations a second a device does in matrix products, by measurement.
//
// It is what a model's rate is held against (MFU): the most that any model can come to here, with the threads, the clock and
// the neighbours that the worker has, which a data sheet does not know. Products are square and large, they go through the
// kernels that models use, and the fastest of a few counts.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "compute/backend.h"

namespace penstock {

// Takes a few tens of milliseconds, and memory of `backend` for two matrices and their product meanwhile.
// Errors: those of Stage (ResourceExhausted, Unimplemented), of the device.
absl::StatusOr<double> MeasureProductRate(Backend& backend, Precision precision, Clock& clock);

// The same of products of this many rows and columns, which take as long as that takes. REQUIRES: `size` is positive.
absl::StatusOr<double> MeasureProductRate(Backend& backend, Precision precision, int64_t size,
                                          Clock& clock);

}  // namespace penstock
