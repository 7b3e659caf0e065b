// Marks of a GPU: timing events in its streams, and NVTX ranges.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compute/cuda/context.h"
#include "compute/device_marks.h"

namespace penstock::cuda {

// REQUIRES: `context` outlives them. Errors: Internal.
absl::StatusOr<std::unique_ptr<DeviceMarks>> MakeMarks(CudaContext& context, int count);

}  // namespace penstock::cuda
