// What the functions of compute/elementwise/ are made of, for vectors of floats.
#pragma once

#include "compute/cpu/kernels/simd.h"
#include "compute/elementwise/activation.h"

namespace penstock {
namespace {

PENSTOCK_INLINE Floats Absolute(Floats x) { return x < 0.0f ? -x : x; }
PENSTOCK_INLINE Floats WithSignOf(Floats sign, Floats magnitude) {
  return sign < 0.0f ? -magnitude : magnitude;
}

struct VectorMath {
  static PENSTOCK_INLINE Floats Sqrt(Floats x) { return penstock::Sqrt(x); }
  static PENSTOCK_INLINE Floats Exp(Floats x) { return penstock::Exp(x); }

  // Near 0 by a polynomial (minimax, as in Cephes' tanhf), because the exponential form cancels there.
  static PENSTOCK_INLINE Floats Tanh(Floats x) {
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

  // The tail is a polynomial times the density, accurate to 1.5e-7 (Abramowitz and Stegun, 7.1.26), so that nothing
  // cancels for negative x.
  static PENSTOCK_INLINE Floats Normal(Floats x, Floats density) {
    const Floats t = 1.0f / (Absolute(x) * (0.3275911f * 0.70710678f) + 1.0f);
    Floats p = Broadcast(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Floats tail = p * t * density * 0.5f;
    return x < 0.0f ? tail : 1.0f - tail;
  }
};

using Sigmoid = Functions<VectorMath>::Sigmoid;
using Tanh = Functions<VectorMath>::Tanh;

}  // namespace
}  // namespace penstock
