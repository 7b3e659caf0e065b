// Sums, products, parts and masks of values of any shape.
#include "compute/cuda/kernels/for_each.cuh"
#include "compute/cuda/kernels/values.h"

namespace penstock::cuda {

void AddAll(cudaStream_t stream, int64_t count, const Addends& addends, float* y) {
  const Addends a = addends;
  ForEach(stream, count, [=] __device__(int64_t at) {
    float sum = a.values[0][at] + a.values[1][at];
    for (int i = 2; i < a.count; ++i) sum += a.values[i][at];
    y[at] = sum;
  });
}

void Multiply(cudaStream_t stream, int64_t count, const float* a, const float* b, float* to) {
  ForEach(stream, count, [=] __device__(int64_t at) { to[at] = a[at] * b[at]; });
}

void CopyColumns(cudaStream_t stream, int64_t rows, int64_t width, const float* from,
                 const Columns& from_columns, float* to, const Columns& to_columns) {
  const Columns f = from_columns, t = to_columns;
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    const int64_t row = at / width;
    const int64_t column = at % width;
    to[row * t.stride + t.first + column] = from[row * f.stride + f.first + column];
  });
}

void PadColumns(cudaStream_t stream, int64_t rows, int64_t width, const float* from, float* to,
                const Columns& to_columns) {
  const Columns t = to_columns;
  ForEach(stream, rows * t.stride, [=] __device__(int64_t at) {
    const int64_t column = at % t.stride - t.first;
    to[at] = column >= 0 && column < width ? from[at / t.stride * width + column] : 0.0f;
  });
}

void MaskSteps(cudaStream_t stream, int64_t rows, int64_t width, int64_t steps, int64_t masked_rows,
               const float* from, const DeviceMask& dropout, float* to) {
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    const int64_t row = at / width;
    const int64_t mask_row = row / masked_rows / steps * masked_rows + row % masked_rows;
    to[at] = from[at] * DropoutFactor(dropout, mask_row, width, at % width);
  });
}

void AddToSamples(cudaStream_t stream, int64_t samples, int64_t count, const float* x,
                  const float* row, float* y) {
  ForEach(stream, samples * count, [=] __device__(int64_t at) { y[at] = x[at] + row[at % count]; });
}

void AddSamples(cudaStream_t stream, int64_t samples, int64_t count, const float* values,
                float* sums) {
  ForEach(stream, count, [=] __device__(int64_t at) {
    float sum = sums[at];
    for (int64_t sample = 0; sample < samples; ++sample) sum += values[sample * count + at];
    sums[at] = sum;
  });
}

void LookUp(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* ids,
            const float* table, const DeviceMask& row_drop, float* output) {
  ForEach(stream, rows * width, [=] __device__(int64_t at) {
    const int32_t id = ids[at / width];
    output[at] = table[id * width + at % width] * DropoutFactor(row_drop, id, 1, 0);
  });
}

void Difference(cudaStream_t stream, int64_t count, float factor, const float* a, const float* b,
                float* to) {
  ForEach(stream, count, [=] __device__(int64_t at) { to[at] = factor * (a[at] - b[at]); });
}

}  // namespace penstock::cuda
