// What losses have in common.
#pragma once

#include <cstdint>

#include "compute/cpu/context.h"

namespace penstock {

// The sum of of_block(first, count) over blocks of `block` rows of `rows`, in order.
// REQUIRES: the scratch memory holds a double for each block.
template <typename OfBlock>
double SumOfBlocks(const CpuContext& cpu, int64_t rows, int64_t block, OfBlock of_block) {
  auto* sums = static_cast<double*>(cpu.layer_scratch.data());
  cpu.threads.ForBlocks(rows, block, [&](int64_t first, int64_t count, int64_t index) {
    sums[index] = of_block(first, count);
  });
  double sum = 0.0;
  for (int64_t index = 0; index * block < rows; ++index) sum += sums[index];
  return sum;
}

}  // namespace penstock
