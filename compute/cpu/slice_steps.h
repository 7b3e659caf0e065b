// A step of an optimizer on the CPU, slice by slice.
#pragma once

#include "absl/types/span.h"
#include "compute/cpu/flat_blocks.h"

namespace penstock {

// Calls step(constants, gradient scale, at, count, mirror) for blocks that make up all slices: `decaying` is for
// those that decay, `other` for the rest; `at` is where the block begins in the flat arrays, and `mirror` that of
// the next weights there, or null.
template <typename Constants, typename Step>
void StepSlices(const CpuContext& cpu, absl::Span<const ParameterSlice> slices,
                const StepArguments& a, const Constants& decaying, const Constants& other,
                const Step& step) {
  Bf16* const mirror = a.rounding_key ? nullptr : a.next_bf16;
  for (size_t s = 0; s < slices.size(); ++s) {
    const ParameterSlice& slice = slices[s];
    const Constants& k = slice.decays ? decaying : other;
    ForFlat(cpu, slice.count, [&](int64_t first, int64_t count) {
      const int64_t at = slice.offset + first;
      step(k, a.gradient_scales[s], at, count, mirror == nullptr ? nullptr : mirror + at);
    });
    RoundMirror(cpu, a, slice);
  }
}

// Of one that keeps a mean and a squared mean for each weight (AdamW, NAdamW). `kernel`: one of
// CpuKernels, for `decaying`. Slices that do not decay keep all of their weights.
template <typename Constants, typename Kernel>
void StepByMoments(const CpuContext& cpu, absl::Span<const ParameterSlice> slices,
                   const Constants& decaying, Kernel kernel, const StepArguments& a) {
  Constants other = decaying;
  other.keep = 1.0f;
  StepSlices(cpu, slices, a, decaying, other,
             [&](const Constants& k, float scale, int64_t at, int64_t count, Bf16* mirror) {
               kernel(k, scale, count, a.weights + at, a.gradients + at, a.state[0] + at,
                      a.state[1] + at, a.next_weights + at, mirror);
             });
}

}  // namespace penstock
