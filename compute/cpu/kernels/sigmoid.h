// Sigmoid and tanh, with their slopes by their values.
#pragma once

#include "compute/cpu/kernels/simd.h"

namespace penstock {
namespace {

PENSTOCK_INLINE Floats Absolute(Floats x) { return x < 0.0f ? -x : x; }
PENSTOCK_INLINE Floats WithSignOf(Floats sign, Floats magnitude) {
  return sign < 0.0f ? -magnitude : magnitude;
}

// 1 / (1 + e), where e = exp(-x).
struct Sigmoid {
  static PENSTOCK_INLINE Floats Value(Floats x) { return 1.0f / (Exp(-x) + 1.0f); }
  static PENSTOCK_INLINE Floats Slope(Floats y) { return y * (1.0f - y); }
};

// Near 0 by a polynomial (minimax, as in Cephes' tanhf), because the exponential form cancels there.
struct Tanh {
  static PENSTOCK_INLINE Floats Value(Floats x) {
    const Floats size = Absolute(x);
    const Floats far = WithSignOf(x, 1.0f - 2.0f / (Exp(size + size) + 1.0f));
    const Floats z = x * x;
    Floats p = Broadcast(-5.70498872745e-3f);
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return size < 0.625f ? p * z * x + x : far;
  }
  static PENSTOCK_INLINE Floats Slope(Floats y) { return 1.0f - y * y; }
};

}  // namespace
}  // namespace penstock
