// Errors of the CUDA libraries as statuses: what was tried, on which device, and the library's own words.
//
// A queued kernel's error may show in any later call; `what` names the call that saw it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock::cuda {

// ResourceExhausted when memory is out, Unavailable when there is no driver or device, Unimplemented for
// what the library has not, else Internal. OK for success.
absl::Status ToStatus(cudaError_t error, absl::string_view what);
absl::Status ToStatus(cublasStatus_t status, absl::string_view what);

}  // namespace penstock::cuda
