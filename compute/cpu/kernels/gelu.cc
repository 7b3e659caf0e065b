// GELU in its tanh form, with a bias (compute/elementwise/activation.h).
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/vector_math.h"

namespace penstock::PENSTOCK_ISA {
namespace {

using GeluTanh = Functions<VectorMath>::GeluTanh;

template <typename Number>
PENSTOCK_INLINE void Evaluate(int64_t rows, int64_t width, const float* product, const float* bias,
                              Number* derivative, Number* output) {
  for (int64_t r = 0; r < rows; ++r) {
    ForVectors(width, [&](int64_t c, auto lanes) {
      const int64_t at = r * width + c;
      const Floats z = Load(product + at, lanes) + Load(bias + c, lanes);
      Store(GeluTanh::Slope(z), derivative + at, lanes);
      Store(z * (1.0f / (GeluTanh::Exponential(z) + 1.0f)), output + at, lanes);
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
