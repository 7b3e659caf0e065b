// Cuts rows into blocks for the kernels, and adds the column sums of the blocks.
//
// A block is small enough for its sums to stay accurate and its data in cache, and is the unit of work
// of a thread. Blocks do not depend on the number of threads, and their sums are added in order, so
// neither does the result.
#pragma once

#include "compute/cpu/context.h"

namespace penstock {

constexpr int64_t kBlockRows = 64;

inline int64_t BlocksOf(int64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

// total += the sums of each block, in order. `sums`: [blocks, width].
inline void AddBlockSums(const CpuContext& context, int64_t rows, int64_t width, const float* sums,
                         float* total) {
  for (int64_t block = 0; block < BlocksOf(rows); ++block) {
    context.kernels.add_into(width, sums + block * width, total);
  }
}

}  // namespace penstock
