// GELU in its tanh form: Hendrycks and Gimpel, arXiv 1606.08415.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/simd.h"

namespace penstock::PENSTOCK_ISA {
namespace {

constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

// With u = kRoot (z + kCubic z^3) and s the logistic function of 2u, (1 + tanh u) / 2 = s, so
//   gelu(z) = z s,   gelu'(z) = s + z s (1 - s) 2 u'.
// This needs one exponential e = exp(-2u), and nothing cancels: s = 1 / (1 + e), 1 - s = e s.
template <typename Number>
PENSTOCK_INLINE void Evaluate(int64_t rows, int64_t width, const float* product, const float* bias,
                              Number* derivative, Number* output) {
  for (int64_t r = 0; r < rows; ++r) {
    ForVectors(width, [&](int64_t c, auto lanes) {
      const int64_t at = r * width + c;
      const Floats z = Load(product + at, lanes) + Load(bias + c, lanes);
      const Floats square = z * z;
      const Floats twice_u = z * (square * (2 * kRoot * kCubic) + 2 * kRoot);
      const Floats e = Exp(-twice_u);
      const Floats s = 1.0f / (e + 1.0f);
      const Floats gelu = z * s;
      const Floats twice_slope = square * (6 * kRoot * kCubic) + 2 * kRoot;
      Store(s + gelu * (e * s) * twice_slope, derivative + at, lanes);
      Store(gelu, output + at, lanes);
    });
  }
}

template <typename Number>
PENSTOCK_INLINE void Gradient(int64_t rows, int64_t width, const float* incoming,
                              const Number* derivative, Number* gradient, float* sums) {
  Fill(width, 0.0f, sums);
  for (int64_t r = 0; r < rows; ++r) {
    ForVectors(width, [&](int64_t c, auto lanes) {
      const int64_t at = r * width + c;
      const Floats value = Load(incoming + at, lanes) * Load(derivative + at, lanes);
      Store(value, gradient + at, lanes);
      Store(Load(sums + c, lanes) + value, sums + c, lanes);
    });
  }
}

}  // namespace

void BiasGelu(int64_t rows, int64_t width, const float* product, const float* bias,
              float* derivative, float* output) {
  Evaluate(rows, width, product, bias, derivative, output);
}
void BiasGelu(int64_t rows, int64_t width, const float* product, const float* bias,
              Bf16* derivative, Bf16* output) {
  Evaluate(rows, width, product, bias, derivative, output);
}

void GeluGradient(int64_t rows, int64_t width, const float* incoming, const float* derivative,
                  float* gradient, float* sums) {
  Gradient(rows, width, incoming, derivative, gradient, sums);
}
void GeluGradient(int64_t rows, int64_t width, const float* incoming, const Bf16* derivative,
                  Bf16* gradient, float* sums) {
  Gradient(rows, width, incoming, derivative, gradient, sums);
}

}  // namespace penstock::PENSTOCK_ISA
