// The functions of single elements that models apply, and their slopes, each written once for all back-ends (inline.h).
#pragma once

#include <cstdint>

#include "compute/elementwise/inline.h"

namespace penstock {

enum class Activation : uint8_t { kRelu, kGeluTanh, kGeluErf, kSilu, kTanh, kSigmoid };

// Says whether the slope is a function of the output; else it is one of the input.
constexpr bool HasSlopeOfOutput(Activation activation) {
  return activation == Activation::kRelu || activation == Activation::kTanh ||
         activation == Activation::kSigmoid;
}

// `Math` is what a back-end's numbers have:
//   Exp(x)              which outside of [-87, 88] is what it is at the end, so that nothing here becomes infinite
//   Tanh(x)
//   Normal(x, density)  the normal distribution, where `density` is exp(-x^2 / 2)
// Of what is not a number, all are not a number.
template <typename Math>
struct Functions {
  struct Relu {
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Value(Number x) {
      const Number zero = {};
      return zero > x ? zero : x;
    }
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Slope(Number y) {
      const Number zero = {};
      return y > zero ? zero + 1.0f : zero;
    }
  };

  struct Sigmoid {
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Value(Number x) {
      return 1.0f / (Math::Exp(-x) + 1.0f);
    }
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Slope(Number y) {
      return y * (1.0f - y);
    }
  };

  struct Tanh {
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Value(Number x) {
      return Math::Tanh(x);
    }
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Slope(Number y) {
      return 1.0f - y * y;
    }
  };

  struct Silu {
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Value(Number x) {
      return x / (Math::Exp(-x) + 1.0f);
    }
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Slope(Number x) {
      const Number e = Math::Exp(-x);
      const Number s = 1.0f / (e + 1.0f);
      return s + x * s * (e * s);  // e s = 1 - s, which nothing cancels in
    }
  };

  // In its tanh form: Hendrycks and Gimpel, arXiv 1606.08415. With u = kRoot (x + kCubic x^3) and s the logistic function
  // of 2u, (1 + tanh u) / 2 = s, so
  //   gelu(x) = x s,   gelu'(x) = s + x s (1 - s) 2 u'.
  // This needs one exponential e = exp(-2u), and nothing cancels: s = 1 / (1 + e), 1 - s = e s.
  struct GeluTanh {
    static constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
    static constexpr float kCubic = 0.044715f;

    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Exponential(Number x) {
      return Math::Exp(-(x * (x * x * (2 * kRoot * kCubic) + 2 * kRoot)));
    }
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Value(Number x) {
      return x / (Exponential(x) + 1.0f);
    }
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Slope(Number x) {
      const Number e = Exponential(x);
      const Number s = 1.0f / (e + 1.0f);
      return s + x * s * (e * s) * (x * x * (6 * kRoot * kCubic) + 2 * kRoot);
    }
  };

  // x P(x), where P is the normal distribution.
  struct GeluErf {
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Value(Number x) {
      return x * Math::Normal(x, Math::Exp(x * x * -0.5f));
    }
    template <typename Number>
    PENSTOCK_ELEMENTWISE static Number Slope(Number x) {
      constexpr float kScale = 0.3989422804f;  // 1 / sqrt(2 pi)
      const Number density = Math::Exp(x * x * -0.5f);
      return Math::Normal(x, density) + x * density * kScale;
    }
  };

  // Calls visit(function) with one of these.
  template <typename Visit>
  static void With(Activation activation, Visit visit) {
    switch (activation) {
      case Activation::kRelu:
        return visit(Relu());
      case Activation::kGeluTanh:
        return visit(GeluTanh());
      case Activation::kGeluErf:
        return visit(GeluErf());
      case Activation::kSilu:
        return visit(Silu());
      case Activation::kTanh:
        return visit(Tanh());
      case Activation::kSigmoid:
        return visit(Sigmoid());
    }
  }
};

}  // namespace penstock
