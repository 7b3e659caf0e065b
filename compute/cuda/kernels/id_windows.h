// How the gradients of a table's rows are added: rows sorted by id are cut into windows of as many places, each of which a
// block of threads adds; the sums of an id whose rows lie in several windows are added window by window. So an id that
// half the rows have keeps as many blocks busy as any other, and the order of all additions follows from the ids alone.
//
// What one thread does, for one column. Without CUDA, so that tests need no GPU. C++17, for nvcc.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PENSTOCK_ID_WINDOWS __host__ __device__ inline
#else
#define PENSTOCK_ID_WINDOWS inline
#endif

namespace penstock::cuda {

inline constexpr int64_t kIdWindow = 32;

constexpr int64_t IdWindows(int64_t rows) { return (rows + kIdWindow - 1) / kIdWindow; }
// Returns the numbers that the sums of windows have, for a table of `width` columns. Each window has two sums: of the id that
// began in an earlier window, and of the one that goes on in the next.
constexpr int64_t IdWindowSums(int64_t rows, int64_t width) { return 2 * IdWindows(rows) * width; }

// Rows sorted by id, as SortRows gives them: ids, then rows.
struct IdOrder {
  int64_t rows;
  int64_t width;
  const int32_t* order;
};

// Adds the rows of a window: to the table where all rows of the id are in it, else to `sums`. value(row, id): of a row's
// gradient.
template <typename Value>
PENSTOCK_ID_WINDOWS void AddIdWindow(const IdOrder& o, int64_t window, int64_t column, float* table,
                                     float* sums, const Value& value) {
  const int32_t* const ids = o.order;
  const int64_t begin = window * kIdWindow;
  const int64_t end = begin + kIdWindow < o.rows ? begin + kIdWindow : o.rows;
  int64_t place = begin;
  while (place < end) {
    const int32_t id = ids[place];
    int64_t next = place + 1;
    while (next < end && ids[next] == id) ++next;
    float sum = 0.0f;
    // Several are loaded at once, and added in order.
#ifdef __CUDACC__
#pragma unroll 8
#endif
    for (int64_t p = place; p < next; ++p) sum += value(o.order[o.rows + p], id);
    const bool comes_from_before = place == begin && begin > 0 && ids[begin - 1] == id;
    const bool goes_on = next == end && end < o.rows && ids[end] == id;
    if (comes_from_before) {
      sums[2 * window * o.width + column] = sum;
    } else if (goes_on) {
      sums[(2 * window + 1) * o.width + column] = sum;
    } else {
      table[id * o.width + column] += sum;
    }
    place = next;
  }
}

// After AddIdWindow of all windows: adds to the table the sums of the id that begins in this window and goes on in the next,
// if there is one.
PENSTOCK_ID_WINDOWS void AddIdAcrossWindows(const IdOrder& o, int64_t window, int64_t column,
                                            float* table, const float* sums) {
  const int32_t* const ids = o.order;
  const int64_t begin = window * kIdWindow;
  const int64_t end = begin + kIdWindow;
  if (end >= o.rows) return;
  const int32_t id = ids[end - 1];
  const bool comes_from_before = begin > 0 && ids[begin - 1] == id;
  if (ids[end] != id || comes_from_before) return;
  float sum = sums[(2 * window + 1) * o.width + column];
  for (int64_t later = window + 1; later * kIdWindow < o.rows && ids[later * kIdWindow] == id;
       ++later) {
    sum += sums[2 * later * o.width + column];
  }
  table[id * o.width + column] += sum;
}

}  // namespace penstock::cuda
