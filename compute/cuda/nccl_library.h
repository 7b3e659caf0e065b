// The functions of NCCL that are used, loaded when they are first asked for: the library takes 200 MB, and
// only groups of GPUs want it.
//
// Thread safety: any thread.
#pragma once

#include <nccl.h>

#include "absl/status/statusor.h"

namespace penstock::cuda {

struct NcclLibrary {
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) get_async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
};

// Errors: Unavailable (not installed, or without one of these).
absl::StatusOr<const NcclLibrary*> LoadNccl();

}  // namespace penstock::cuda
