// LayerNorm and its gradient, and column sums: Ba, Kiros and Hinton, arXiv 1607.06450.
#include "compute/cuda/kernels/common.cuh"

namespace penstock::cuda {
namespace {

constexpr int kRowsPerBlock = kBlock / kWarp;  // a warp works on a row

// Column sums: each block of threads adds the rows of a band, then the bands are added in order.
constexpr int64_t kBandRows = 64;

template <typename Number>
__global__ void ForwardKernel(int64_t rows, int64_t width, float epsilon, const float* input,
                              const float* gain, const float* bias, float* mean,
                              float* inverse_deviation, Number* output) {
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int lane = threadIdx.x % kWarp;
  const float* x = input + row * width;
  float sum = 0.0f;
  for (int64_t c = lane; c < width; c += kWarp) sum += x[c];
  const float average = WarpSum(sum) / static_cast<float>(width);
  float squares = 0.0f;
  for (int64_t c = lane; c < width; c += kWarp) squares += (x[c] - average) * (x[c] - average);
  const float inverse = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(width) + epsilon);
  if (lane == 0) {
    mean[row] = average;
    inverse_deviation[row] = inverse;
  }
  for (int64_t c = lane; c < width; c += kWarp) {
    output[row * width + c] = FromFloat<Number>((x[c] - average) * inverse * gain[c] + bias[c]);
  }
}

// With n = (x - mean) / deviation and g = grad_output * gain:
//   grad_input = (g - mean(g) - n mean(g n)) / deviation.
__global__ void InputKernel(int64_t rows, int64_t width, LayerNormBackwardArguments a) {
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t at = row * width;
  const float mean = a.mean[row];
  const float inverse = a.inverse_deviation[row];
  float sum = 0.0f, dot = 0.0f;
  for (int64_t c = lane; c < width; c += kWarp) {
    const float g = a.grad_output[at + c] * a.gain[c];
    sum += g;
    dot += g * (a.input[at + c] - mean) * inverse;
  }
  sum = WarpSum(sum) / static_cast<float>(width);
  dot = WarpSum(dot) / static_cast<float>(width);
  for (int64_t c = lane; c < width; c += kWarp) {
    const float normal = (a.input[at + c] - mean) * inverse;
    const float g = (a.grad_output[at + c] * a.gain[c] - sum - normal * dot) * inverse;
    a.grad_input[at + c] = a.residual == nullptr ? g : g + a.residual[at + c];
  }
}

// Partial sums of a band of rows, of grad_output * normal and of grad_output: [bands, 2 width].
__global__ void GainBiasKernel(int64_t rows, int64_t width, LayerNormBackwardArguments a) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= width) return;
  const int64_t first = int64_t{blockIdx.y} * kBandRows;
  const int64_t end = min(first + kBandRows, rows);
  float gain = 0.0f, bias = 0.0f;
  for (int64_t row = first; row < end; ++row) {
    const float g = a.grad_output[row * width + c];
    gain += g * (a.input[row * width + c] - a.mean[row]) * a.inverse_deviation[row];
    bias += g;
  }
  float* band = a.workspace + int64_t{blockIdx.y} * 2 * width;
  band[c] = gain;
  band[width + c] = bias;
}

template <typename Number>
__global__ void BandKernel(int64_t rows, int64_t width, const Number* values, float* bands) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= width) return;
  const int64_t first = int64_t{blockIdx.y} * kBandRows;
  const int64_t end = min(first + kBandRows, rows);
  float sum = 0.0f;
  for (int64_t row = first; row < end; ++row) sum += ToFloat(values[row * width + c]);
  bands[int64_t{blockIdx.y} * width + c] = sum;
}

// sums[c] = the sum over the bands of column first + c.
__global__ void BandsKernel(int64_t bands, int64_t stride, int64_t first, int64_t width,
                            const float* partial, float* sums) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= width) return;
  float sum = 0.0f;
  for (int64_t band = 0; band < bands; ++band) sum += partial[band * stride + first + c];
  sums[c] = sum;
}

dim3 BandGrid(int64_t rows, int64_t width) {
  return dim3(static_cast<uint32_t>(CeilDiv(width, kBlock)),
              static_cast<uint32_t>(CeilDiv(rows, kBandRows)));
}

}  // namespace

template <typename Number>
void LayerNormForward(cudaStream_t stream, int64_t rows, int64_t width, float epsilon,
                      const float* input, const float* gain, const float* bias, float* mean,
                      float* inverse_deviation, Number* output) {
  ForwardKernel<<<CeilDiv(rows, kRowsPerBlock), kBlock, 0, stream>>>(
      rows, width, epsilon, input, gain, bias, mean, inverse_deviation, output);
}
template void LayerNormForward<float>(cudaStream_t, int64_t, int64_t, float, const float*,
                                      const float*, const float*, float*, float*, float*);
template void LayerNormForward<Bf16>(cudaStream_t, int64_t, int64_t, float, const float*,
                                     const float*, const float*, float*, float*, Bf16*);

int64_t ColumnSumsWorkspaceFloats(int64_t rows, int64_t width) {
  return CeilDiv(rows, kBandRows) * width;
}

void LayerNormBackward(cudaStream_t stream, int64_t rows, int64_t width,
                       const LayerNormBackwardArguments& a) {
  if (a.grad_input != nullptr) {
    InputKernel<<<CeilDiv(rows, kRowsPerBlock), kBlock, 0, stream>>>(rows, width, a);
  }
  GainBiasKernel<<<BandGrid(rows, width), kBlock, 0, stream>>>(rows, width, a);
  const int64_t bands = CeilDiv(rows, kBandRows);
  const int64_t blocks = CeilDiv(width, kBlock);
  BandsKernel<<<blocks, kBlock, 0, stream>>>(bands, 2 * width, 0, width, a.workspace, a.gain_sums);
  BandsKernel<<<blocks, kBlock, 0, stream>>>(bands, 2 * width, width, width, a.workspace,
                                             a.bias_sums);
}

template <typename Number>
void ColumnSums(cudaStream_t stream, int64_t rows, int64_t width, const Number* values, float* sums,
                float* workspace) {
  BandKernel<<<BandGrid(rows, width), kBlock, 0, stream>>>(rows, width, values, workspace);
  BandsKernel<<<CeilDiv(width, kBlock), kBlock, 0, stream>>>(CeilDiv(rows, kBandRows), width, 0,
                                                             width, workspace, sums);
}
template void ColumnSums<float>(cudaStream_t, int64_t, int64_t, const float*, float*, float*);
template void ColumnSums<Bf16>(cudaStream_t, int64_t, int64_t, const Bf16*, float*, float*);

}  // namespace penstock::cuda
