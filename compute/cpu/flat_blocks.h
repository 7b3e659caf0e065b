// Flat arrays, cut for threads.
#pragma once

#include "compute/cpu/context.h"

namespace penstock {

constexpr int64_t kFlatBlock = int64_t{1} << 14;  // floats

// body(first, count) over blocks of 0 .. count.
template <typename Body>
void ForFlat(const CpuContext& cpu, int64_t count, Body body) {
  cpu.threads.ForBlocks(count, kFlatBlock,
                        [&](int64_t first, int64_t size, int64_t) { body(first, size); });
}

}  // namespace penstock
