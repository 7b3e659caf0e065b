// How a head cuts its logits into slices of rows: each goes through the product and the loss while it lies in the L2 cache,
// so that the loss reads no logits from memory.
//
// Without CUDA, so that tests need no GPU.
#pragma once

#include <cstdint>

namespace penstock::cuda {

// Rows of a product's tile, of which a slice has a whole number.
inline constexpr int64_t kSliceRowsMultiple = 128;

// Rows of each slice: as many as take at most half of the cache, which weights pass through as well, but one tile's at least;
// all rows where they take no more, or cannot be cut into equal slices.
constexpr int64_t LogitSliceRows(int64_t rows, int64_t row_bytes, int64_t cache_bytes) {
  const int64_t fit = cache_bytes / 2 / row_bytes;
  if (rows <= fit) return rows;
  int64_t tiles = fit / kSliceRowsMultiple;
  if (tiles == 0) tiles = 1;
  for (; tiles > 0; --tiles) {
    if (rows % (tiles * kSliceRowsMultiple) == 0) return tiles * kSliceRowsMultiple;
  }
  return rows;
}

}  // namespace penstock::cuda
