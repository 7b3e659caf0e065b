// Parts of softmax over a row.
#pragma once

#include "compute/cpu/kernels/simd.h"

namespace penstock {
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
}  // namespace penstock
