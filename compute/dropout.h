// Dropout: from a layer's probability and a pass to the mask.
#pragma once

#include <cmath>
#include <cstdint>

#include "compute/dropout_mask.h"
#include "compute/op_kernels.h"

namespace penstock {

class Dropout {
 public:
  Dropout() = default;
  Dropout(double probability, int64_t time) : probability_(probability), time_(time) {}

  bool active() const { return probability_ > 0.0; }

  // Drops nothing unless the pass trains.
  DropoutMask Mask(const PassContext& context) const {
    if (!active() || !context.training) return {};
    return {.key = context.seed ^ kKey,
            .layer = context.draw,
            .first_sample = context.first_sample,
            .time = time_,
            .drop_below = static_cast<uint32_t>(std::lround(probability_ * 0x1p32 * (1 - 0x1p-32))),
            .scale = static_cast<float>(1.0 / (1.0 - probability_))};
  }

 private:
  // Sets masks apart from all other random numbers of the job's seed.
  static constexpr uint64_t kKey = 0x64726f706f757421;

  double probability_ = 0.0;
  int64_t time_ = 0;
};

}  // namespace penstock
