// Convolutions as plain sums, and images and filters in another order. Simple rather than fast: the fast path is cuDNN's.
#include "compute/cuda/kernels/for_each.cuh"
#include "compute/cuda/kernels/images.cuh"

namespace penstock::cuda {
namespace {

// A block for each element of the filters.
template <typename Number>
__global__ void WeightKernel(ConvolutionSizes s, const Number* x, const Number* dy, float* dw) {
  const int64_t at = blockIdx.x;
  const int64_t group_inputs = s.inputs / s.groups;
  const int64_t across = at % s.width.kernel;
  const int64_t down = at / s.width.kernel % s.height.kernel;
  const int64_t filter = at / s.width.kernel / s.height.kernel;  // of one output and one input
  const int64_t output = filter / group_inputs;
  const int64_t input = output / (s.outputs / s.groups) * group_inputs + filter % group_inputs;
  const int64_t places = s.samples * s.height.outputs * s.width.outputs;
  float sum = 0.0f;
  for (int64_t place = threadIdx.x; place < places; place += kBlock) {
    const int64_t column = InputOf(s.width, place % s.width.outputs, across);
    const int64_t row = InputOf(s.height, place / s.width.outputs % s.height.outputs, down);
    if (!Inside(s.width, column) || !Inside(s.height, row)) continue;
    const int64_t sample = place / s.width.outputs / s.height.outputs;
    const int64_t pixel = (sample * s.height.inputs + row) * s.width.inputs + column;
    sum += ToFloat(x[pixel * s.inputs + input]) * ToFloat(dy[place * s.outputs + output]);
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) dw[at] += sum;
}

// Where element `at` of [count, columns, rows] is in its transpose, [count, rows, columns].
__device__ inline int64_t OfTranspose(int64_t at, int64_t rows, int64_t columns) {
  return (at / rows / columns * rows + at % rows) * columns + at / rows % columns;
}

}  // namespace

template <typename Number>
void ConvolutionForward(cudaStream_t stream, const ConvolutionSizes& sizes, const Number* x,
                        const Number* filters, float* y) {
  const ConvolutionSizes s = sizes;
  const int64_t count = s.samples * s.height.outputs * s.width.outputs * s.outputs;
  ForEach(stream, count, [=] __device__(int64_t at) {
    const int64_t group_inputs = s.inputs / s.groups;
    const int64_t area = s.height.kernel * s.width.kernel;
    const int64_t output = at % s.outputs;
    const int64_t place = at / s.outputs;
    const int64_t sample = place / s.width.outputs / s.height.outputs;
    const int64_t first_input = output / (s.outputs / s.groups) * group_inputs;
    float sum = 0.0f;
    for (int64_t down = 0; down < s.height.kernel; ++down) {
      const int64_t row = InputOf(s.height, place / s.width.outputs % s.height.outputs, down);
      if (!Inside(s.height, row)) continue;
      for (int64_t across = 0; across < s.width.kernel; ++across) {
        const int64_t column = InputOf(s.width, place % s.width.outputs, across);
        if (!Inside(s.width, column)) continue;
        const int64_t pixel = (sample * s.height.inputs + row) * s.width.inputs + column;
        const Number* from = x + pixel * s.inputs + first_input;
        const Number* filter =
            filters + output * group_inputs * area + down * s.width.kernel + across;
        for (int64_t i = 0; i < group_inputs; ++i) {
          sum += ToFloat(from[i]) * ToFloat(filter[i * area]);
        }
      }
    }
    y[at] = sum;
  });
}
template void ConvolutionForward<float>(cudaStream_t, const ConvolutionSizes&, const float*,
                                        const float*, float*);
template void ConvolutionForward<Bf16>(cudaStream_t, const ConvolutionSizes&, const Bf16*,
                                       const Bf16*, float*);

template <typename Number>
void ConvolutionBackwardInput(cudaStream_t stream, const ConvolutionSizes& sizes, const Number* dy,
                              const Number* filters, float* dx) {
  const ConvolutionSizes s = sizes;
  const int64_t count = s.samples * s.height.inputs * s.width.inputs * s.inputs;
  ForEach(stream, count, [=] __device__(int64_t at) {
    const int64_t group_inputs = s.inputs / s.groups;
    const int64_t group_outputs = s.outputs / s.groups;
    const int64_t area = s.height.kernel * s.width.kernel;
    const int64_t input = at % s.inputs;
    const int64_t pixel = at / s.inputs;
    const int64_t sample = pixel / s.width.inputs / s.height.inputs;
    const int64_t first_output = input / group_inputs * group_outputs;
    float sum = 0.0f;
    for (int64_t down = 0; down < s.height.kernel; ++down) {
      const int64_t row = OutputOf(s.height, pixel / s.width.inputs % s.height.inputs, down);
      if (row < 0) continue;
      for (int64_t across = 0; across < s.width.kernel; ++across) {
        const int64_t column = OutputOf(s.width, pixel % s.width.inputs, across);
        if (column < 0) continue;
        const int64_t place = (sample * s.height.outputs + row) * s.width.outputs + column;
        const Number* from = dy + place * s.outputs + first_output;
        const Number* filter = filters +
                               (first_output * group_inputs + input % group_inputs) * area +
                               down * s.width.kernel + across;
        for (int64_t o = 0; o < group_outputs; ++o) {
          sum += ToFloat(from[o]) * ToFloat(filter[o * group_inputs * area]);
        }
      }
    }
    dx[at] = sum;
  });
}
template void ConvolutionBackwardInput<float>(cudaStream_t, const ConvolutionSizes&, const float*,
                                              const float*, float*);
template void ConvolutionBackwardInput<Bf16>(cudaStream_t, const ConvolutionSizes&, const Bf16*,
                                             const Bf16*, float*);

template <typename Number>
void ConvolutionBackwardWeight(cudaStream_t stream, const ConvolutionSizes& sizes, const Number* x,
                               const Number* dy, float* dw) {
  const int64_t count =
      sizes.outputs * (sizes.inputs / sizes.groups) * sizes.height.kernel * sizes.width.kernel;
  WeightKernel<<<count, kBlock, 0, stream>>>(sizes, x, dy, dw);
}
template void ConvolutionBackwardWeight<float>(cudaStream_t, const ConvolutionSizes&, const float*,
                                               const float*, float*);
template void ConvolutionBackwardWeight<Bf16>(cudaStream_t, const ConvolutionSizes&, const Bf16*,
                                              const Bf16*, float*);

template <typename Number>
void TransposeEach(cudaStream_t stream, int64_t count, int64_t rows, int64_t columns,
                   const Number* from, Number* to) {
  ForEach(stream, count * rows * columns,
          [=] __device__(int64_t at) { to[at] = from[OfTranspose(at, rows, columns)]; });
}
template void TransposeEach<float>(cudaStream_t, int64_t, int64_t, int64_t, const float*, float*);
template void TransposeEach<Bf16>(cudaStream_t, int64_t, int64_t, int64_t, const Bf16*, Bf16*);

template <typename Number>
void AddTransposedEach(cudaStream_t stream, int64_t count, int64_t rows, int64_t columns,
                       const Number* from, float* to) {
  ForEach(stream, count * rows * columns,
          [=] __device__(int64_t at) { to[at] += ToFloat(from[OfTranspose(at, rows, columns)]); });
}
template void AddTransposedEach<float>(cudaStream_t, int64_t, int64_t, int64_t, const float*,
                                       float*);
template void AddTransposedEach<Bf16>(cudaStream_t, int64_t, int64_t, int64_t, const Bf16*, float*);

}  // namespace penstock::cuda
