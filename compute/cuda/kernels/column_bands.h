// How column sums cut the rows of a matrix: each block of threads adds those of a band, then the bands are added in order.
//
// Without CUDA, so that tests need no GPU. C++17, for nvcc.
#pragma once

#include <cstdint>

namespace penstock::cuda {

// Blocks of a grid along its second dimension, where bands are.
inline constexpr int64_t kColumnBandsMax = 65535;

// Rows of a band. More than 64 only where a grid has too few blocks for such bands: all other sums keep their order.
constexpr int64_t ColumnBandRows(int64_t rows) {
  constexpr int64_t kRows = 64;
  if (rows <= kRows * kColumnBandsMax) return kRows;
  return (rows + kColumnBandsMax - 1) / kColumnBandsMax;
}

constexpr int64_t ColumnBands(int64_t rows) {
  const int64_t band = ColumnBandRows(rows);
  return (rows + band - 1) / band;
}

}  // namespace penstock::cuda
