// Flat arrays, cut for threads.
#pragma once

#include <cstdint>

#include "compute/cpu/context.h"
#include "compute/optimizer.h"

namespace penstock {

constexpr int64_t kFlatBlock = int64_t{1} << 14;  // floats; a multiple of what RoundToBf16 wants

// body(first, count) over blocks of 0 .. count.
template <typename Body>
void ForFlat(const CpuContext& cpu, int64_t count, Body body) {
  cpu.threads.ForBlocks(count, kFlatBlock,
                        [&](int64_t first, int64_t size, int64_t) { body(first, size); });
}

inline void ToBf16(const CpuContext& cpu, int64_t count, const float* from, Bf16* to) {
  ForFlat(cpu, count, [&](int64_t first, int64_t size) {
    cpu.kernels.to_bf16(size, from + first, to + first);
  });
}

inline void RoundParameter(const CpuContext& cpu, const StochasticRounding& rounding, int64_t count,
                           const float* from, Bf16* to) {
  ForFlat(cpu, count, [&](int64_t first, int64_t size) {
    cpu.kernels.round_to_bf16(rounding, first, size, from + first, to + first);
  });
}

// The mirror of a slice, where the kernel of a step does not write it itself because it is rounded at random.
inline void RoundMirror(const CpuContext& cpu, const StepArguments& a,
                        const ParameterSlice& slice) {
  if (a.next_bf16 == nullptr || !a.rounding_key) return;
  RoundParameter(cpu, a.RoundingOf(slice), slice.count, a.next_weights + slice.offset,
                 a.next_bf16 + slice.offset);
}

}  // namespace penstock
