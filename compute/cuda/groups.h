// Groups of GPUs of several workers: with NCCL (nccl_groups.cc), or none without its header
// (no_nccl.cc).
#pragma once

#include <memory>

#include "compute/cuda/context.h"
#include "compute/device_group.h"

namespace penstock::cuda {

// REQUIRES: the context outlives them.
std::unique_ptr<DeviceGroups> MakeGroups(CudaContext& context);

}  // namespace penstock::cuda
