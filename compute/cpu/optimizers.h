// The optimizers of the CPU back-end, one file each.
#pragma once

#include <memory>

#include "compute/cpu/context.h"
#include "compute/optimizer.h"

namespace penstock {

std::unique_ptr<Optimizer> MakeCpuSgd(const CpuContext& context, const SgdConfig& config);
std::unique_ptr<Optimizer> MakeCpuAdamW(const CpuContext& context, const AdamWConfig& config);

}  // namespace penstock
