// The softmax of causal attention, block of query rows by block of query rows. What is kept of the
// forward pass is the logarithm of each row's sum, from which the backward pass computes the probabilities
// again: Dao et al., "FlashAttention", arXiv 2205.14135.
#include <math.h>

#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/simd.h"

namespace penstock::PENSTOCK_ISA {
namespace {

PENSTOCK_INLINE float RowMax(const float* row, int64_t count) {
  Floats largest = Broadcast(row[0]);
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    largest = Max(largest, Load(row + c, All()));
  }
  float result = MaxLane(largest);
  for (; c < count; ++c) {
    result = row[c] > result ? row[c] : result;
  }
  return result;
}

// Zeroes the lanes of a partial vector that do not take part.
PENSTOCK_INLINE Floats Masked(Floats values, All) { return values; }
PENSTOCK_INLINE Floats Masked(Floats values, First lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    values[lane] = lane < lanes.count ? values[lane] : 0.0f;
  }
  return values;
}

// row -> exp(row - shift). Returns the sum.
PENSTOCK_INLINE float ExpRow(float* row, int64_t count, float shift) {
  Floats sum = {};
  ForVectors(count, [&](int64_t c, auto lanes) {
    const Floats value = Masked(Exp(Load(row + c, lanes) - shift), lanes);
    Store(value, row + c, lanes);
    sum += value;
  });
  return SumLanes(sum);
}

}  // namespace

void CausalSoftmax(const CausalRows& a, float* scores, float* log_sums, float* inverse_sums) {
  for (int64_t r = 0; r < a.rows; ++r) {
    float* row = scores + r * a.stride;
    const int64_t visible = a.first_row + r + 1;
    const float largest = RowMax(row, visible);
    const float sum = ExpRow(row, visible, largest);
    Fill(a.columns - visible, 0.0f, row + visible);
    log_sums[r] = largest + logf(sum);
    inverse_sums[r] = 1.0f / sum;
  }
}

void ScaleRows(int64_t rows, int64_t width, int64_t stride, const float* factors, float* values) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = values + r * stride;
    const float factor = factors[r];
    ForVectors(width, [&](int64_t c, auto lanes) {
      Store(Load(row + c, lanes) * factor, row + c, lanes);
    });
  }
}

void CausalSoftmaxGradient(const CausalRows& a, float scale, const float* log_sums, float* scores,
                           float* gradients) {
  for (int64_t r = 0; r < a.rows; ++r) {
    float* row = scores + r * a.stride;
    float* gradient = gradients + r * a.stride;
    const int64_t visible = a.first_row + r + 1;
    const float log_sum = log_sums[r];
    Floats products = {};
    ForVectors(visible, [&](int64_t c, auto lanes) {
      const Floats probability = Exp(Load(row + c, lanes) - log_sum);
      Store(probability, row + c, lanes);
      products += probability * Load(gradient + c, lanes);  // lanes that do not take part add zero
    });
    const float dot = SumLanes(products);
    ForVectors(visible, [&](int64_t c, auto lanes) {
      Store(Load(row + c, lanes) * (Load(gradient + c, lanes) - dot) * scale, gradient + c, lanes);
    });
    Fill(a.columns - visible, 0.0f, row + visible);
    Fill(a.columns - visible, 0.0f, gradient + visible);
  }
}

}  // namespace penstock::PENSTOCK_ISA
