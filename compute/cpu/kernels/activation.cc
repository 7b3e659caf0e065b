// Functions of each element by itself, and their gradients.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/vector_math.h"

namespace penstock::PENSTOCK_ISA {
namespace {

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

}  // namespace

void Activate(Activation activation, int64_t count, const float* input, float* output) {
  Functions<VectorMath>::With(
      activation, [&](auto function) { ActivateAll<decltype(function)>(count, input, output); });
}

void ActivateGradient(Activation activation, int64_t count, const float* seen,
                      const float* incoming, float* gradient) {
  Functions<VectorMath>::With(activation, [&](auto function) {
    ActivateGradientAll<decltype(function)>(count, seen, incoming, gradient);
  });
}

}  // namespace penstock::PENSTOCK_ISA
