// Parts of softmax over a row.
#pragma once

#include "compute/cpu/kernels/simd.h"

namespace penstock {
namespace {

// REQUIRES: count >= 1.
PENSTOCK_INLINE float RowMax(const float* row, int64_t count) {
  Floats largest = Broadcast(row[0]);
  ForVectors(count, [&](int64_t c, auto lanes) {
    largest = Max(largest, LoadOr(row + c, largest, lanes));
  });
  return MaxLane(largest);
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
