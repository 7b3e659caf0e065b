// The GPUs that this build has code for.
#pragma once

namespace penstock::cuda {

// The major number of the oldest compute capability, as cmake/penstock_cuda.cmake has it.
inline constexpr int kCapabilityMajorMin = 8;

}  // namespace penstock::cuda
