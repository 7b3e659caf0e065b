// Functions of each element by itself.
#include "compute/cuda/kernels/float_math.cuh"
#include "compute/cuda/kernels/for_each.cuh"
#include "compute/cuda/kernels/values.h"

namespace penstock::cuda {
namespace {

template <typename Function>
void ActivateWith(cudaStream_t stream, int64_t count, const float* x, float* y) {
  ForEach(stream, count, [=] __device__(int64_t at) { y[at] = Function::Value(x[at]); });
}

template <typename Function>
void ActivateBackwardWith(cudaStream_t stream, int64_t count, const float* seen, const float* dy,
                          float* dx) {
  ForEach(stream, count,
          [=] __device__(int64_t at) { dx[at] = dy[at] * Function::Slope(seen[at]); });
}

}  // namespace

void Activate(cudaStream_t stream, Activation activation, int64_t count, const float* x, float* y) {
  Functions<FloatMath>::With(
      activation, [&](auto function) { ActivateWith<decltype(function)>(stream, count, x, y); });
}

void ActivateBackward(cudaStream_t stream, Activation activation, int64_t count, const float* seen,
                      const float* dy, float* dx) {
  Functions<FloatMath>::With(activation, [&](auto function) {
    ActivateBackwardWith<decltype(function)>(stream, count, seen, dy, dx);
  });
}

}  // namespace penstock::cuda
