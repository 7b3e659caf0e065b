// LayerNorm over rows, as a part of the layers that have one.
#pragma once

#include "compute/block_layout.h"
#include "compute/cpu/context.h"
#include "compute/cpu/row_blocks.h"
#include "compute/op_kernels.h"

namespace penstock {

inline constexpr float kGptNormEpsilon = 1e-5f;  // of GPT-2's branches

// The statistics of each row, which F leaves for I.
struct NormStatistics {
  Place<float> mean, inverse_deviation;

  void AddTo(BlockLayout& stash, int64_t rows) {
    mean = stash.Add<float>(rows);
    inverse_deviation = stash.Add<float>(rows);
  }
};

// A range of rows of the microbatch.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// output [range.count, width] = LayerNorm(input). Pointers are to the range's first row; the gain is
// parameter 0 of the layer and the bias parameter 1.
template <typename Number>
void Normalise(const CpuContext& cpu, const NormStatistics& statistics, const WeightView& weights,
               RowRange range, int64_t width, const float* input, Number* output, void* stash,
               float epsilon = kGptNormEpsilon) {
  cpu.threads.ForBlocks(range.count, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
    const LayerNormRows rows = {
        count,
        width,
        epsilon,
        input + first * width,
        weights.parameter(0),
        weights.parameter(1),
        statistics.mean.in(stash) + range.first + first,
        statistics.inverse_deviation.in(stash) + range.first + first,
    };
    cpu.kernels.of<Number>().layer_norm(rows, output + first * width);
  });
}

struct NormGradientArguments {
  const float* input;
  const float* grad_output;
  const float* residual;  // or null
  float* grad_input;      // or null
  float* block_sums;      // scratch [2, blocks, width]
  float* gain_sums;       // added to
  float* bias_sums;       // added to
};

void NormaliseGradient(const CpuContext& cpu, const NormStatistics& statistics,
                       const WeightView& weights, RowRange range, int64_t width,
                       const NormGradientArguments& arguments, void* stash);

}  // namespace penstock
