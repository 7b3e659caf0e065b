// Where the pools of the CUDA back-end take their memory: the device, and page-locked host memory, which
// copies need to run beside the computation.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>

#include "compute/buffer_pool.h"

namespace penstock::cuda {

// REQUIRES: 0 <= device. They live as long as the program, because buffers may outlive the back-end.
MemorySource& DeviceMemory(int device);
MemorySource& PinnedMemory(int device);

// Returns the part that each of `processes` has of the memory that one of them finds free once it has its own context. The
// contexts and libraries of the others are still to come.
int64_t ShareOfMemory(int64_t free_bytes, int processes);

}  // namespace penstock::cuda
