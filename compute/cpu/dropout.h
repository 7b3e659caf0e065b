// Dropout of a block of rows, as the kernels take it.
#pragma once

#include <optional>

#include "compute/cpu/kernels/kernels.h"
#include "compute/dropout.h"

namespace penstock {

// The mask of a block of rows that begins at `first_row` of the microbatch; none when nothing is dropped.
inline std::optional<DropoutRows> RowsOf(const Dropout& dropout, const PassContext& context,
                                         int64_t first_row) {
  const DropoutMask mask = dropout.Mask(context);
  if (mask.drop_below == 0) return std::nullopt;
  return DropoutRows{mask, first_row};
}

inline const DropoutRows* OrNull(const std::optional<DropoutRows>& rows) {
  return rows ? &*rows : nullptr;
}

}  // namespace penstock
