// Element by element: dropout and residuals, GELU, biases, flat arrays.
#include "compute/cuda/kernels/for_each.cuh"

namespace penstock::cuda {
namespace {

// GELU in its tanh form: Hendrycks and Gimpel, arXiv 1606.08415. With u = kRoot (z + kCubic z^3) and s
// the logistic function of 2u: gelu(z) = z s and gelu'(z) = s + z s (1 - s) 2 u'.
constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

__device__ float Logistic2u(float z) {
  return 1.0f / (1.0f + expf(-2.0f * kRoot * z * (1.0f + kCubic * z * z)));
}
__device__ float Gelu(float z) { return z * Logistic2u(z); }
__device__ float GeluDerivative(float z) {
  const float s = Logistic2u(z);
  const float twice_slope = 2.0f * kRoot * (1.0f + 3.0f * kCubic * z * z);
  return s + z * s * (1.0f - s) * twice_slope;
}

}  // namespace

void ResidualForward(cudaStream_t stream, int64_t rows, int64_t width, const float* residual,
                     const float* product, const float* bias, const DeviceMask& dropout,
                     float* output) {
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    const int64_t row = at / width;
    const int64_t column = at % width;
    output[at] =
        residual[at] + (product[at] + bias[column]) * DropoutFactor(dropout, row, width, column);
  });
}

template <typename Number>
void Mask(cudaStream_t stream, int64_t rows, int64_t width, const float* values,
          const DeviceMask& dropout, Number* masked) {
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    masked[at] =
        FromFloat<Number>(values[at] * DropoutFactor(dropout, at / width, width, at % width));
  });
}
template void Mask<float>(cudaStream_t, int64_t, int64_t, const float*, const DeviceMask&, float*);
template void Mask<Bf16>(cudaStream_t, int64_t, int64_t, const float*, const DeviceMask&, Bf16*);

template <typename Number>
void BiasGeluForward(cudaStream_t stream, int64_t rows, int64_t width, float* z, const float* bias,
                     Number* output) {
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    z[at] += bias[at % width];
    output[at] = FromFloat<Number>(Gelu(z[at]));
  });
}
template void BiasGeluForward<float>(cudaStream_t, int64_t, int64_t, float*, const float*, float*);
template void BiasGeluForward<Bf16>(cudaStream_t, int64_t, int64_t, float*, const float*, Bf16*);

template <typename Number>
void GeluBackward(cudaStream_t stream, int64_t count, const float* incoming, const float* z,
                  Number* gradient) {
  ForEach(stream, count, [=] __device__(int64_t at) {
    gradient[at] = FromFloat<Number>(incoming[at] * GeluDerivative(z[at]));
  });
}
template void GeluBackward<float>(cudaStream_t, int64_t, const float*, const float*, float*);
template void GeluBackward<Bf16>(cudaStream_t, int64_t, const float*, const float*, Bf16*);

template <typename Number>
void AddBias(cudaStream_t stream, int64_t rows, int64_t width, const float* values,
             const float* bias, Number* to) {
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    to[at] = FromFloat<Number>(values[at] + bias[at % width]);
  });
}
template void AddBias<float>(cudaStream_t, int64_t, int64_t, const float*, const float*, float*);
template void AddBias<Bf16>(cudaStream_t, int64_t, int64_t, const float*, const float*, Bf16*);

void ConvertToFloat(cudaStream_t stream, int64_t rows, int64_t width, const Bf16* values,
                    const float* bias, float* to) {
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    to[at] = ToFloat(values[at]) + (bias == nullptr ? 0.0f : bias[at % width]);
  });
}

void Store(cudaStream_t stream, int64_t value, int64_t* to) {
  ForEach(stream, 1, [=] __device__(int64_t) { *to = value; });
}

void Fill(cudaStream_t stream, int64_t count, float value, float* values) {
  ForEach(stream, count, [=] __device__(int64_t at) { values[at] = value; });
}

void AddInto(cudaStream_t stream, int64_t count, const float* values, float* sums) {
  ForEach(stream, count, [=] __device__(int64_t at) { sums[at] += values[at]; });
}

void Scale(cudaStream_t stream, int64_t count, float factor, float* values) {
  ForEach(stream, count, [=] __device__(int64_t at) { values[at] *= factor; });
}

void ConvertToBf16(cudaStream_t stream, int64_t count, const float* from, Bf16* to) {
  ForEach(stream, count, [=] __device__(int64_t at) { to[at] = FromFloat<Bf16>(from[at]); });
}

void RoundToBf16(cudaStream_t stream, int64_t count, const float* from,
                 const StochasticRounding& rounding, Bf16* to) {
  ForEach(stream, count,
          [=] __device__(int64_t at) { to[at] = RoundAtRandom(from[at], at, rounding); });
}

}  // namespace penstock::cuda
