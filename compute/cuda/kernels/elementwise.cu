// Element by element: dropout and residuals, GELU, biases, flat arrays.
#include "compute/cuda/kernels/float_math.cuh"
#include "compute/cuda/kernels/for_each.cuh"

namespace penstock::cuda {
namespace {

template <typename Number>
struct BiasGelu {
  int64_t width;
  float* z;
  const float* bias;
  Number* output;

  template <int kLanes>
  __device__ void At(int64_t at) const {
    Pack<float, kLanes> sums = LoadPack<kLanes>(z + at);
    const Pack<float, kLanes> biases = LoadPack<kLanes>(bias + at % width);
    Pack<Number, kLanes> outputs;
    for (int i = 0; i < kLanes; ++i) {
      sums.at[i] += biases.at[i];
      outputs.at[i] = FromFloat<Number>(GeluTanh::Value(sums.at[i]));
    }
    StorePack(z + at, sums);
    StorePack(output + at, outputs);
  }
};

struct Gelu {
  const Bf16* z;
  Bf16* output;

  template <int kLanes>
  __device__ void At(int64_t at) const {
    Pack<Bf16, kLanes> values = LoadPack<kLanes>(z + at);
    for (int i = 0; i < kLanes; ++i) {
      values.at[i] = FromFloat<Bf16>(GeluTanh::Value(ToFloat(values.at[i])));
    }
    StorePack(output + at, values);
  }
};

template <typename From, typename Number>
struct GeluGradient {
  const From* incoming;
  const From* z;
  Number* gradient;

  template <int kLanes>
  __device__ void At(int64_t at) const {
    const Pack<From, kLanes> in = LoadPack<kLanes>(incoming + at);
    const Pack<From, kLanes> from = LoadPack<kLanes>(z + at);
    Pack<Number, kLanes> out;
    for (int i = 0; i < kLanes; ++i) {
      out.at[i] = FromFloat<Number>(ToFloat(in.at[i]) * GeluTanh::Slope(ToFloat(from.at[i])));
    }
    StorePack(gradient + at, out);
  }
};

// to = values + bias; null: without.
template <typename From, typename To>
struct Biased {
  int64_t width;
  const From* values;
  const float* bias;
  To* to;

  template <int kLanes>
  __device__ void At(int64_t at) const {
    const Pack<From, kLanes> from = LoadPack<kLanes>(values + at);
    Pack<float, kLanes> biases = {};
    if (bias != nullptr) biases = LoadPack<kLanes>(bias + at % width);
    Pack<To, kLanes> sums;
    for (int i = 0; i < kLanes; ++i) {
      sums.at[i] = FromFloat<To>(ToFloat(from.at[i]) + biases.at[i]);
    }
    StorePack(to + at, sums);
  }
};

struct Sum {
  const float* values;
  float* sums;

  template <int kLanes>
  __device__ void At(int64_t at) const {
    const Pack<float, kLanes> added = LoadPack<kLanes>(values + at);
    Pack<float, kLanes> sum = LoadPack<kLanes>(sums + at);
    for (int i = 0; i < kLanes; ++i) sum.at[i] += added.at[i];
    StorePack(sums + at, sum);
  }
};

}  // namespace

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
  ForEachPack(stream, rows, width, {z, bias, output}, BiasGelu<Number>{width, z, bias, output});
}
template void BiasGeluForward<float>(cudaStream_t, int64_t, int64_t, float*, const float*, float*);
template void BiasGeluForward<Bf16>(cudaStream_t, int64_t, int64_t, float*, const float*, Bf16*);

void GeluForward(cudaStream_t stream, int64_t count, const Bf16* z, Bf16* output) {
  ForEachPack(stream, /*rows=*/1, count, {z, output}, Gelu{z, output});
}

template <typename From, typename Number>
void GeluBackward(cudaStream_t stream, int64_t count, const From* incoming, const From* z,
                  Number* gradient) {
  ForEachPack(stream, /*rows=*/1, count, {incoming, z, gradient},
              GeluGradient<From, Number>{incoming, z, gradient});
}
template void GeluBackward(cudaStream_t, int64_t, const float*, const float*, float*);
template void GeluBackward(cudaStream_t, int64_t, const float*, const float*, Bf16*);
template void GeluBackward(cudaStream_t, int64_t, const Bf16*, const Bf16*, Bf16*);

template <typename Number>
void AddBias(cudaStream_t stream, int64_t rows, int64_t width, const float* values,
             const float* bias, Number* to) {
  ForEachPack(stream, rows, width, {values, bias, to},
              Biased<float, Number>{width, values, bias, to});
}
template void AddBias<float>(cudaStream_t, int64_t, int64_t, const float*, const float*, float*);
template void AddBias<Bf16>(cudaStream_t, int64_t, int64_t, const float*, const float*, Bf16*);

void ConvertToFloat(cudaStream_t stream, int64_t rows, int64_t width, const Bf16* values,
                    const float* bias, float* to) {
  ForEachPack(stream, rows, width, {values, bias, to},
              Biased<Bf16, float>{width, values, bias, to});
}

void Store(cudaStream_t stream, int64_t value, int64_t* to) {
  ForEach(stream, 1, [=] __device__(int64_t) { *to = value; });
}

void Fill(cudaStream_t stream, int64_t count, float value, float* values) {
  ForEach(stream, count, [=] __device__(int64_t at) { values[at] = value; });
}

void AddInto(cudaStream_t stream, int64_t count, const float* values, float* sums) {
  ForEachPack(stream, /*rows=*/1, count, {values, sums}, Sum{values, sums});
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
