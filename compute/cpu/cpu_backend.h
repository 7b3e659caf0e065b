// The CPU back-end: the parts of this folder put together.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compute/backend.h"
#include "compute/cpu/kernels/kernels.h"

namespace penstock {

// With the loops of one instruction set, where MakeCpuBackend(threads) takes the fastest that this machine has: for tests of
// the others. REQUIRES: this machine has it (kernels/best.h). Errors: as MakeCpuBackend.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(int threads, const Kernels& kernels);

}  // namespace penstock
