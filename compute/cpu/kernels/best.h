// Which of the kernel tables this machine can run.
#pragma once

#include <vector>

#include "compute/cpu/kernels/kernels.h"

namespace penstock {

// The fastest first; never empty.
std::vector<const Kernels*> SupportedKernels();

}  // namespace penstock
