// Tiles: the matrix products inside attention, too small and too ragged for a library call each.
//
// A tile is kTileRows x (up to kTileColumns) sums kept in registers while the inner dimension runs. Operands
// are padded so that no tile is partial in its rows; the right operand's rows are contiguous.
#pragma once

#include "compute/cpu/kernels/simd.h"

namespace penstock {
namespace {

#if defined(__AVX512F__)
constexpr int kTileRows = 8;  // 16 sums, 2 columns and 1 factor in 32 registers
#else
constexpr int kTileRows = 4;  // 8 sums, 2 columns and 1 factor in 16 registers
#endif
constexpr int kTileVectors = 2;
constexpr int kTileColumns = kTileVectors * kLanes;

PENSTOCK_INLINE int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Element (row, k) is data[row * row_stride + k * inner_stride], so a transposed matrix costs nothing.
struct LeftOperand {
  const float* data;
  int64_t row_stride, inner_stride;
};
// Row k begins at data[k * stride].
struct RightOperand {
  const float* data;
  int64_t stride;
};

enum class Write { kOver, kAdd };

template <int kVectors, Write kWrite>
PENSTOCK_INLINE void Tile(const LeftOperand& left, const RightOperand& right, int64_t inner,
                          float* result, int64_t result_stride) {
  Floats sums[kTileRows][kVectors] = {};
  for (int64_t k = 0; k < inner; ++k) {
    Floats columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      columns[v] = Load(right.data + k * right.stride + v * kLanes, All());
    }
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const float factor = left.data[r * left.row_stride + k * left.inner_stride];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] += factor * columns[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* const to = result + r * result_stride + v * kLanes;
      Store(kWrite == Write::kAdd ? Load(to, All()) + sums[r][v] : sums[r][v], to, All());
    }
  }
}

// kTileRows rows of the result, `columns` wide. REQUIRES: columns is a multiple of kLanes.
template <Write kWrite>
PENSTOCK_INLINE void Strip(const LeftOperand& left, const RightOperand& right, int64_t columns,
                           int64_t inner, float* result, int64_t result_stride) {
  int64_t c = 0;
  for (; c + kTileColumns <= columns; c += kTileColumns) {
    Tile<kTileVectors, kWrite>(left, {right.data + c, right.stride}, inner, result + c,
                               result_stride);
  }
  if (c < columns) {
    Tile<1, kWrite>(left, {right.data + c, right.stride}, inner, result + c, result_stride);
  }
}

}  // namespace
}  // namespace penstock
