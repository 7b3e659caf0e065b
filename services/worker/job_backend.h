// The back-end that a job computes on at this worker.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compute/backend.h"
#include "compute/device.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// With the job's training.threads, because results depend on the number, of which a worker may have
// more.
// Errors: InvalidArgument (the job), FailedPrecondition (more than `threads_max`; a precision that the device
// does not have), MakeBackendOn's.
absl::StatusOr<std::unique_ptr<Backend>> MakeJobBackend(const v1::JobSpec& spec,
                                                        const Device& device, int threads_max);

}  // namespace penstock
