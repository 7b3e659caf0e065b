// Dropout: from a layer's probability and a pass to the arguments of the kernels that apply the mask.
#pragma once

#include <cmath>
#include <optional>

#include "compute/cpu/kernels/kernels.h"
#include "compute/layer.h"

namespace penstock {

class Dropout {
 public:
  Dropout() = default;
  Dropout(double probability, int64_t time) : probability_(probability), time_(time) {}

  bool active() const { return probability_ > 0.0; }

  // The mask of a block of rows that begins at `first_row` of the microbatch; none when nothing is
  // dropped.
  std::optional<DropoutRows> Rows(const PassContext& context, int64_t first_row) const {
    if (!active() || !context.training) {
      return std::nullopt;
    }
    DropoutRows rows;
    rows.key = context.seed ^ kKey;
    rows.layer = static_cast<uint32_t>(context.layer_index);
    rows.first_sample = context.first_sample;
    rows.time = time_;
    rows.first_row = first_row;
    rows.drop_below = static_cast<uint32_t>(std::lround(probability_ * 0x1p32 * (1 - 0x1p-32)));
    rows.scale = static_cast<float>(1.0 / (1.0 - probability_));
    return rows;
  }

 private:
  // Sets masks apart from all other random numbers of the job's seed.
  static constexpr uint64_t kKey = 0x64726f706f757421;

  double probability_ = 0.0;
  int64_t time_ = 0;
};

inline const DropoutRows* OrNull(const std::optional<DropoutRows>& rows) {
  return rows ? &*rows : nullptr;
}

}  // namespace penstock
