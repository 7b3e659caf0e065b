// Element by element: dropout and residuals, GELU, biases, flat arrays.
#include "compute/cuda/kernels/float_math.cuh"
#include "compute/cuda/kernels/for_each.cuh"

namespace penstock::cuda {
void ResidualForward(cudaStream_t stream, int64_t rows, int64_t width, const float* residual,
                     const float* product, const float* bias, const DeviceMask& dropout,
                     float* output) {
  if (IsInQuads(width, {residual, product, bias, output})) {
    ForEach(stream, rows * width / 4, [=] __device__(int64_t quad) {
      const int64_t at = 4 * quad;
      const int64_t row = at / width;
      const int64_t column = at - row * width;
      const Quad<float> r = LoadPack<4>(residual + at);
      const Quad<float> p = LoadPack<4>(product + at);
      const Quad<float> b = LoadPack<4>(bias + column);
      Quad<float> sum;
      for (int i = 0; i < 4; ++i) {
        sum.at[i] = r.at[i] + (p.at[i] + b.at[i]) * DropoutFactor(dropout, row, width, column + i);
      }
      StorePack(output + at, sum);
    });
    return;
  }
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    const int64_t row = at / width;
    const int64_t column = at % width;
    output[at] =
        residual[at] + (product[at] + bias[column]) * DropoutFactor(dropout, row, width, column);
  });
}

template <typename Number>
void Mask(cudaStream_t stream, int64_t rows, int64_t width, const float* values,
          const DeviceMask& dropout, int64_t first_row, Number* masked) {
  if (IsInQuads(width, {values, masked})) {
    ForEach(stream, rows * width / 4, [=] __device__(int64_t quad) {
      const int64_t at = 4 * quad;
      const int64_t row = at / width;
      const int64_t column = at - row * width;
      const Quad<float> v = LoadPack<4>(values + at);
      Quad<Number> m;
      for (int i = 0; i < 4; ++i) {
        m.at[i] =
            FromFloat<Number>(v.at[i] * DropoutFactor(dropout, first_row + row, width, column + i));
      }
      StorePack(masked + at, m);
    });
    return;
  }
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    const int64_t row = first_row + at / width;
    masked[at] = FromFloat<Number>(values[at] * DropoutFactor(dropout, row, width, at % width));
  });
}
template void Mask<float>(cudaStream_t, int64_t, int64_t, const float*, const DeviceMask&, int64_t,
                          float*);
template void Mask<Bf16>(cudaStream_t, int64_t, int64_t, const float*, const DeviceMask&, int64_t,
                         Bf16*);

template <typename Number>
void BiasGeluForward(cudaStream_t stream, int64_t rows, int64_t width, float* z, const float* bias,
                     Number* output) {
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    z[at] += bias[at % width];
    output[at] = FromFloat<Number>(GeluTanh::Value(z[at]));
  });
}
template void BiasGeluForward<float>(cudaStream_t, int64_t, int64_t, float*, const float*, float*);
template void BiasGeluForward<Bf16>(cudaStream_t, int64_t, int64_t, float*, const float*, Bf16*);

template <typename Number>
void GeluBackward(cudaStream_t stream, int64_t count, const float* incoming, const float* z,
                  Number* gradient) {
  ForEach(stream, count, [=] __device__(int64_t at) {
    gradient[at] = FromFloat<Number>(incoming[at] * GeluTanh::Slope(z[at]));
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
  if (IsInQuads(count, {from, to})) {
    ForEach(stream, count / 4, [=] __device__(int64_t quad) {
      const Quad<float> v = LoadPack<4>(from + 4 * quad);
      Quad<Bf16> rounded;
      for (int i = 0; i < 4; ++i) rounded.at[i] = FromFloat<Bf16>(v.at[i]);
      StorePack(to + 4 * quad, rounded);
    });
    return;
  }
  ForEach(stream, count, [=] __device__(int64_t at) { to[at] = FromFloat<Bf16>(from[at]); });
}

void RoundToBf16(cudaStream_t stream, int64_t count, float* values) {
  if (IsInQuads(count, {values})) {
    ForEach(stream, count / 4, [=] __device__(int64_t quad) {
      Quad<float> v = LoadPack<4>(values + 4 * quad);
      for (float& value : v.at) value = ToFloat(FromFloat<Bf16>(value));
      StorePack(values + 4 * quad, v);
    });
    return;
  }
  ForEach(stream, count,
          [=] __device__(int64_t at) { values[at] = ToFloat(FromFloat<Bf16>(values[at])); });
}

void RoundToBf16(cudaStream_t stream, int64_t count, const float* from,
                 const StochasticRounding& rounding, Bf16* to) {
  ForEach(stream, count,
          [=] __device__(int64_t at) { to[at] = RoundAtRandom(from[at], at, rounding); });
}

}  // namespace penstock::cuda
