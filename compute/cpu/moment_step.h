// The step of an optimizer that keeps a mean and a squared mean for each weight (AdamW, NAdamW),
// slice by slice.
#pragma once

#include "absl/types/span.h"
#include "compute/cpu/flat_blocks.h"

namespace penstock {

// `kernel`: one of CpuKernels, for `decaying`. Slices that do not decay keep all of their weights.
template <typename Constants, typename Kernel>
void StepByMoments(const CpuContext& cpu, absl::Span<const ParameterSlice> slices,
                   const Constants& decaying, Kernel kernel, const StepArguments& a) {
  Constants other = decaying;
  other.keep = 1.0f;
  Bf16* const mirror = a.rounding_key ? nullptr : a.next_bf16;
  for (size_t s = 0; s < slices.size(); ++s) {
    const ParameterSlice& slice = slices[s];
    const Constants& k = slice.decays ? decaying : other;
    ForFlat(cpu, slice.count, [&](int64_t first, int64_t count) {
      const int64_t at = slice.offset + first;
      kernel(k, a.gradient_scales[s], count, a.weights + at, a.gradients + at, a.state[0] + at,
             a.state[1] + at, a.next_weights + at, mirror == nullptr ? nullptr : mirror + at);
    });
    RoundMirror(cpu, a, slice);
  }
}

}  // namespace penstock
