// Where the pools of the CUDA back-end take their memory: the device, and page-locked host memory, which
// copies need to run beside the computation.
//
// Thread safety: any thread.
#pragma once

#include "compute/buffer_pool.h"

namespace penstock::cuda {

// REQUIRES: 0 <= device. They live as long as the program, because buffers may outlive the back-end.
MemorySource& DeviceMemory(int device);
MemorySource& PinnedMemory(int device);

}  // namespace penstock::cuda
