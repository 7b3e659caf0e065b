// DropoutMask: which elements of one microbatch [batch, time, width] one layer drops; a plain struct, so
// that kernels compiled for any device or instruction set can include it.
//
// A pure function (Philox, base/random.h) of key, layer, sample, time step and column, the same on every
// back-end, says whether an element is kept; compute/cpu/kernels/dropout.h numbers the random words.
#pragma once

#include <cstdint>

namespace penstock {

struct DropoutMask {
  uint64_t key = 0;
  uint32_t layer = 0;
  int64_t first_sample = 0;  // global index of row 0 of the microbatch
  int64_t time = 0;          // rows in a sample
  uint32_t drop_below =
      0;               // dropped if its random word is below: probability * 2^32; 0: nothing is
  float scale = 1.0f;  // of what is kept: 1 / (1 - probability)
};

}  // namespace penstock
