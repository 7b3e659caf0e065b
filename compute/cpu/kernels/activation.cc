// Functions of each element by itself, and their gradients.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/sigmoid.h"
#include "compute/cpu/kernels/simd.h"

namespace penstock::PENSTOCK_ISA {
namespace {

struct Relu {
  static PENSTOCK_INLINE Floats Value(Floats x) { return Max(Floats{}, x); }
  static PENSTOCK_INLINE Floats Slope(Floats y) { return y > 0.0f ? Broadcast(1.0f) : Floats{}; }
};

struct Silu {
  static PENSTOCK_INLINE Floats Value(Floats x) { return x / (Exp(-x) + 1.0f); }
  static PENSTOCK_INLINE Floats Slope(Floats x) {
    const Floats e = Exp(-x);
    const Floats s = 1.0f / (e + 1.0f);
    return s + x * s * (e * s);  // e s = 1 - s, which nothing cancels in
  }
};

// In its tanh form, as gelu.cc has it.
struct GeluTanh {
  static constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;

  static PENSTOCK_INLINE Floats Exponential(Floats x) {
    return Exp(-(x * (x * x * (2 * kRoot * kCubic) + 2 * kRoot)));
  }
  static PENSTOCK_INLINE Floats Value(Floats x) { return x / (Exponential(x) + 1.0f); }
  static PENSTOCK_INLINE Floats Slope(Floats x) {
    const Floats e = Exponential(x);
    const Floats s = 1.0f / (e + 1.0f);
    return s + x * s * (e * s) * (x * x * (6 * kRoot * kCubic) + 2 * kRoot);
  }
};

// x P(x), where P is the normal distribution. Its tail is a polynomial times the density, accurate to 1.5e-7
// (Abramowitz and Stegun, 7.1.26), so that nothing cancels for negative x.
struct GeluErf {
  // `density`: exp(-x^2 / 2).
  static PENSTOCK_INLINE Floats Probability(Floats x, Floats density) {
    const Floats t = 1.0f / (Absolute(x) * (0.3275911f * 0.70710678f) + 1.0f);
    Floats p = Broadcast(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const Floats tail = p * t * density * 0.5f;
    return x < 0.0f ? tail : 1.0f - tail;
  }
  static PENSTOCK_INLINE Floats Value(Floats x) { return x * Probability(x, Exp(x * x * -0.5f)); }
  static PENSTOCK_INLINE Floats Slope(Floats x) {
    constexpr float kScale = 0.3989422804f;  // 1 / sqrt(2 pi)
    const Floats density = Exp(x * x * -0.5f);
    return Probability(x, density) + x * density * kScale;
  }
};

template <typename Function>
void ActivateAll(int64_t count, const float* input, float* output) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    Store(Function::Value(Load(input + i, lanes)), output + i, lanes);
  });
}

template <typename Function>
void ActivateGradientAll(int64_t count, const float* seen, const float* incoming, float* gradient) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    Store(Load(incoming + i, lanes) * Function::Slope(Load(seen + i, lanes)), gradient + i, lanes);
  });
}

// Calls visit(Function()).
template <typename Visit>
PENSTOCK_INLINE void With(Activation activation, Visit visit) {
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

}  // namespace

void Activate(Activation activation, int64_t count, const float* input, float* output) {
  With(activation, [&](auto function) { ActivateAll<decltype(function)>(count, input, output); });
}

void ActivateGradient(Activation activation, int64_t count, const float* seen,
                      const float* incoming, float* gradient) {
  With(activation, [&](auto function) {
    ActivateGradientAll<decltype(function)>(count, seen, incoming, gradient);
  });
}

}  // namespace penstock::PENSTOCK_ISA
