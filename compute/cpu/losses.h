// What losses have in common.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compute/cpu/context.h"
#include "compute/op_kernels.h"

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

// How many of a loss's targets, its input 1, are valid.
inline int64_t ValidTargetsOf(const Tape& tape, int64_t rows, int32_t ignored) {
  const auto* targets = tape.input<int32_t>(1);
  return rows - std::count(targets, targets + rows, ignored);
}

// The mean loss, of which `sum` is over the valid targets: 0 if there is none.
inline float MeanOfValid(double sum, int64_t valid) {
  return valid == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(valid));
}

// The factor of a row in the gradient of that mean. Without a valid target, no row reads it.
inline float ScaleOfValid(const Tape& tape, int64_t valid) {
  return tape.loss_scale / static_cast<float>(std::max<int64_t>(valid, 1));
}

}  // namespace penstock
