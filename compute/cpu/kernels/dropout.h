// Dropout masks from Philox4x32-10 (base/random.h), several counters at a time.
//
// Elements of a row are numbered in groups of 4 * 16: group g holds columns 64 g .. 64 g + 63, and its
// column 16 w + l takes word w of the counter whose first part is
// (time step * groups + g) * 16 + l. So a mask is the same for every instruction set and partition.
#pragma once

#include "compute/cpu/kernels/philox.h"

namespace penstock {
namespace {

constexpr int kGroupLanes = 16;
constexpr int kGroupColumns = 4 * kGroupLanes;

// Writes the factors (0 or scale) of one group of columns of row `row` of the block.
PENSTOCK_INLINE void GroupFactors(const DropoutRows& d, int64_t row, int64_t groups, int64_t group,
                                  float* factors) {
  const int64_t global_row = d.first_row + row;
  const auto sample = static_cast<uint64_t>(d.first_sample + global_row / d.time);
  const auto first = static_cast<uint32_t>((global_row % d.time * groups + group) * kGroupLanes);
  Words lane_number;
  for (int lane = 0; lane < kLanes; ++lane) {
    lane_number[lane] = lane;
  }
  for (int lane = 0; lane < kGroupLanes; lane += kLanes) {
    const PhiloxWords random = PhiloxLanes(d.key, lane_number + (first + lane), Words{} + d.layer,
                                           Words{} + static_cast<uint32_t>(sample),
                                           Words{} + static_cast<uint32_t>(sample >> 32));
    for (int word = 0; word < 4; ++word) {
      const Floats factor = random.word[word] < d.drop_below ? Floats{} : Broadcast(d.scale);
      Store(factor, factors + word * kGroupLanes + lane, All());
    }
  }
}

// Calls body(column, lanes, factors) over the columns of a row, with dropout's `factors` of the
// elements.
template <typename Body>
PENSTOCK_INLINE void ForDropout(const DropoutRows* dropout, int64_t row, int64_t width, Body body) {
  if (dropout == nullptr) {
    ForVectors(width, [&](int64_t c, auto lanes) { body(c, lanes, Broadcast(1.0f)); });
    return;
  }
  const int64_t groups = (width + kGroupColumns - 1) / kGroupColumns;
  for (int64_t group = 0; group < groups; ++group) {
    float factors[kGroupColumns];
    GroupFactors(*dropout, row, groups, group, factors);
    const int64_t first = group * kGroupColumns;
    const int64_t count = width - first < kGroupColumns ? width - first : kGroupColumns;
    ForVectors(count,
               [&](int64_t c, auto lanes) { body(first + c, lanes, Load(factors + c, All())); });
  }
}

}  // namespace
}  // namespace penstock
