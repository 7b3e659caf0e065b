#include "compute/cpu/norm.h"

namespace penstock {

void NormaliseGradient(const CpuContext& cpu, const NormStatistics& statistics,
                       const WeightView& weights, RowRange range, int64_t width,
                       const NormGradientArguments& a, void* stash) {
  float* gain_blocks = a.block_sums;
  float* bias_blocks = gain_blocks + BlocksOf(range.count) * width;
  cpu.threads.ForBlocks(range.count, kBlockRows, [&](int64_t first, int64_t count, int64_t block) {
    const int64_t at = first * width;
    cpu.kernels.layer_norm_gradient({
        count,
        width,
        a.input + at,
        weights.parameter(0),
        statistics.mean.in(stash) + range.first + first,
        statistics.inverse_deviation.in(stash) + range.first + first,
        a.grad_output + at,
        a.residual == nullptr ? nullptr : a.residual + at,
        a.grad_input == nullptr ? nullptr : a.grad_input + at,
        gain_blocks + block * width,
        bias_blocks + block * width,
    });
  });
  AddBlockSums(cpu, range.count, width, gain_blocks, a.gain_sums);
  AddBlockSums(cpu, range.count, width, bias_blocks, a.bias_sums);
}

}  // namespace penstock
