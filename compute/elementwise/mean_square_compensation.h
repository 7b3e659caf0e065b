// Adaptive delay compensation (DC-ASGD-a of Zheng et al., ICML 2017, arXiv 1609.08326):
//   v = m v + (1 - m) g^2;  g = g + strength / sqrt(v + 1e-7) * g^2 * moved,
// where `moved` is how far the weight went since the gradient was taken.
//
// C++17, for nvcc.
#pragma once

#include "compute/elementwise/inline.h"

namespace penstock {

struct MeanSquareCompensation {
  float keep;  // m
  float take;  // 1 - m
  float strength;

  // Returns the compensated gradient; makes `v` that of this update.
  template <typename Math, typename Number>
  PENSTOCK_ELEMENTWISE Number Compensated(Number g, Number moved, Number& v) const {
    v = v * keep + g * g * take;
    // In this order a gradient whose square is infinite stays what it is.
    return g + g * (g * strength / Math::Sqrt(v + 1e-7f)) * moved;
  }
};

}  // namespace penstock
