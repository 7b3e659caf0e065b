// LayerNorm and its gradient, and column sums: Ba, Kiros and Hinton, arXiv 1607.06450.
#include "compute/cuda/kernels/column_bands.h"
#include "compute/cuda/kernels/for_each.cuh"

namespace penstock::cuda {
namespace {

constexpr int kRowsPerBlock = kBlock / kWarp;  // a warp works on a row

// kPart numbers of a row are loaded at once.
template <typename Number, int kPart>
__global__ void ForwardKernel(int64_t rows, int64_t width, float epsilon, const float* input,
                              const float* gain, const float* bias, float* mean,
                              float* inverse_deviation, Number* output) {
  using Part = Pack<float, kPart>;
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t from = lane * kPart;
  const float* x = input + row * width;
  float sum = 0.0f;
#pragma unroll 4
  for (int64_t c = from; c < width; c += kWarp * kPart) {
    const Part part = LoadPack<kPart>(x + c);
    for (int i = 0; i < kPart; ++i) sum += part.at[i];
  }
  const float average = WarpSum(sum) / static_cast<float>(width);
  float squares = 0.0f;
#pragma unroll 4
  for (int64_t c = from; c < width; c += kWarp * kPart) {
    const Part part = LoadPack<kPart>(x + c);
    for (int i = 0; i < kPart; ++i) {
      squares += (part.at[i] - average) * (part.at[i] - average);
    }
  }
  const float inverse = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(width) + epsilon);
  if (lane == 0) {
    mean[row] = average;
    inverse_deviation[row] = inverse;
  }
#pragma unroll 4
  for (int64_t c = from; c < width; c += kWarp * kPart) {
    const Part part = LoadPack<kPart>(x + c);
    const Part gains = LoadPack<kPart>(gain + c);
    const Part biases = LoadPack<kPart>(bias + c);
    Pack<Number, kPart> normal;
    for (int i = 0; i < kPart; ++i) {
      normal.at[i] =
          FromFloat<Number>((part.at[i] - average) * inverse * gains.at[i] + biases.at[i]);
    }
    StorePack(output + row * width + c, normal);
  }
}

// With n = (x - mean) / deviation and g = grad_output * gain:
//   grad_input = (g - mean(g) - n mean(g n)) / deviation.
// kPart numbers of a row are loaded at once.
template <int kPart>
__global__ void InputKernel(int64_t rows, int64_t width, LayerNormBackwardArguments a) {
  using Part = Pack<float, kPart>;
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int64_t from = threadIdx.x % kWarp * kPart;
  const int64_t at = row * width;
  const float mean = a.mean[row];
  const float inverse = a.inverse_deviation[row];
  float sum = 0.0f, dot = 0.0f;
#pragma unroll 4
  for (int64_t c = from; c < width; c += kWarp * kPart) {
    const Part grad_output = LoadPack<kPart>(a.grad_output + at + c);
    const Part gain = LoadPack<kPart>(a.gain + c);
    const Part x = LoadPack<kPart>(a.input + at + c);
    for (int i = 0; i < kPart; ++i) {
      const float g = grad_output.at[i] * gain.at[i];
      sum += g;
      dot += g * (x.at[i] - mean) * inverse;
    }
  }
  sum = WarpSum(sum) / static_cast<float>(width);
  dot = WarpSum(dot) / static_cast<float>(width);
#pragma unroll 4
  for (int64_t c = from; c < width; c += kWarp * kPart) {
    const Part grad_output = LoadPack<kPart>(a.grad_output + at + c);
    const Part gain = LoadPack<kPart>(a.gain + c);
    const Part x = LoadPack<kPart>(a.input + at + c);
    Part result = {};
    if (a.residual != nullptr) result = LoadPack<kPart>(a.residual + at + c);
    for (int i = 0; i < kPart; ++i) {
      const float normal = (x.at[i] - mean) * inverse;
      const float g = (grad_output.at[i] * gain.at[i] - sum - normal * dot) * inverse;
      result.at[i] = a.residual == nullptr ? g : g + result.at[i];
    }
    StorePack(a.grad_input + at + c, result);
  }
}

// Partial sums of a band of rows, of grad_output * normal and of grad_output: [bands, 2 width]. A thread has kPart columns.
template <int kPart>
__global__ void GainBiasKernel(int64_t rows, int64_t width, LayerNormBackwardArguments a) {
  using Part = Pack<float, kPart>;
  const int64_t c = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPart;
  if (c >= width) return;
  const int64_t first = int64_t{blockIdx.y} * ColumnBandRows(rows);
  const int64_t end = min(first + ColumnBandRows(rows), rows);
  Part gain = {}, bias = {};
#pragma unroll 4
  for (int64_t row = first; row < end; ++row) {
    const Part grad_output = LoadPack<kPart>(a.grad_output + row * width + c);
    const Part x = LoadPack<kPart>(a.input + row * width + c);
    const float mean = a.mean[row];
    const float inverse = a.inverse_deviation[row];
    for (int i = 0; i < kPart; ++i) {
      gain.at[i] += grad_output.at[i] * (x.at[i] - mean) * inverse;
      bias.at[i] += grad_output.at[i];
    }
  }
  float* band = a.workspace + int64_t{blockIdx.y} * 2 * width;
  for (int i = 0; i < kPart; ++i) {
    band[c + i] = gain.at[i];
    band[width + c + i] = bias.at[i];
  }
}

// A thread has kPart columns.
template <typename Number, int kPart>
__global__ void BandKernel(int64_t rows, int64_t width, const Number* values, float* bands) {
  const int64_t c = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPart;
  if (c >= width) return;
  const int64_t first = int64_t{blockIdx.y} * ColumnBandRows(rows);
  const int64_t end = min(first + ColumnBandRows(rows), rows);
  float sums[kPart] = {};
#pragma unroll 8
  for (int64_t row = first; row < end; ++row) {
    const Pack<Number, kPart> part = LoadPack<kPart>(values + row * width + c);
    for (int i = 0; i < kPart; ++i) sums[i] += ToFloat(part.at[i]);
  }
  for (int i = 0; i < kPart; ++i) bands[int64_t{blockIdx.y} * width + c + i] = sums[i];
}

// sums[c] = the sum over the bands of column first + c. A warp's threads have a column each; a block's warps share the bands
// of kWarp columns, every one some of them, and their sums are added in order.
__global__ void BandsKernel(int64_t bands, int64_t stride, int64_t first, int64_t width,
                            const float* partial, float* sums) {
  constexpr int kWarps = kBlock / kWarp;
  __shared__ float of_warp[kWarps][kWarp];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int64_t c = int64_t{blockIdx.x} * kWarp + lane;
  float sum = 0.0f;
  if (c < width) {
#pragma unroll 8
    for (int64_t band = warp; band < bands; band += kWarps) {
      sum += partial[band * stride + first + c];
    }
  }
  of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || c >= width) return;
  for (int other = 1; other < kWarps; ++other) sum += of_warp[other][lane];
  sums[c] = sum;
}

// Of blocks whose threads have `part` columns: small ones, so that there are many.
constexpr int kBandBlock = 64;
dim3 BandGrid(int64_t rows, int64_t width, int part) {
  return dim3(static_cast<uint32_t>(CeilDiv(CeilDiv(width, part), kBandBlock)),
              static_cast<uint32_t>(ColumnBands(rows)));
}

// Whether rows are made of packs of 16 bytes.
template <typename Number>
bool IsInPacks(int64_t width, const Number* rows) {
  return width % (16 / sizeof(Number)) == 0 && reinterpret_cast<uintptr_t>(rows) % 16 == 0;
}

}  // namespace

template <typename Number>
void LayerNormForward(cudaStream_t stream, int64_t rows, int64_t width, float epsilon,
                      const float* input, const float* gain, const float* bias, float* mean,
                      float* inverse_deviation, Number* output) {
  const bool in_quads = IsInQuads(width, {input, gain, bias, output});
  const auto kernel = in_quads ? ForwardKernel<Number, 4> : ForwardKernel<Number, 1>;
  kernel<<<CeilDiv(rows, kRowsPerBlock), kBlock, 0, stream>>>(
      rows, width, epsilon, input, gain, bias, mean, inverse_deviation, output);
}
template void LayerNormForward<float>(cudaStream_t, int64_t, int64_t, float, const float*,
                                      const float*, const float*, float*, float*, float*);
template void LayerNormForward<Bf16>(cudaStream_t, int64_t, int64_t, float, const float*,
                                     const float*, const float*, float*, float*, Bf16*);

int64_t ColumnSumsWorkspaceFloats(int64_t rows, int64_t width) { return ColumnBands(rows) * width; }

void LayerNormBackward(cudaStream_t stream, int64_t rows, int64_t width,
                       const LayerNormBackwardArguments& a) {
  if (a.grad_input != nullptr) {
    const bool in_quads =
        IsInQuads(width, {a.grad_output, a.gain, a.input, a.residual, a.grad_input});
    const auto kernel = in_quads ? InputKernel<4> : InputKernel<1>;
    kernel<<<CeilDiv(rows, kRowsPerBlock), kBlock, 0, stream>>>(rows, width, a);
  }
  const int part = IsInQuads(width, {a.grad_output, a.input}) ? 4 : 1;
  const auto gain_bias = part == 4 ? GainBiasKernel<4> : GainBiasKernel<1>;
  gain_bias<<<BandGrid(rows, width, part), kBandBlock, 0, stream>>>(rows, width, a);
  const int64_t bands = ColumnBands(rows);
  const int64_t blocks = CeilDiv(width, kWarp);
  BandsKernel<<<blocks, kBlock, 0, stream>>>(bands, 2 * width, 0, width, a.workspace, a.gain_sums);
  BandsKernel<<<blocks, kBlock, 0, stream>>>(bands, 2 * width, width, width, a.workspace,
                                             a.bias_sums);
}

template <typename Number>
void ColumnSums(cudaStream_t stream, int64_t rows, int64_t width, const Number* values, float* sums,
                float* workspace) {
  constexpr int kPart = 16 / sizeof(Number);
  const bool in_packs = IsInPacks(width, values);
  const auto kernel = in_packs ? BandKernel<Number, kPart> : BandKernel<Number, 1>;
  kernel<<<BandGrid(rows, width, in_packs ? kPart : 1), kBandBlock, 0, stream>>>(rows, width,
                                                                                 values, workspace);
  BandsKernel<<<CeilDiv(width, kWarp), kBlock, 0, stream>>>(ColumnBands(rows), width, 0, width,
                                                            workspace, sums);
}
template void ColumnSums<float>(cudaStream_t, int64_t, int64_t, const float*, float*, float*);
template void ColumnSums<Bf16>(cudaStream_t, int64_t, int64_t, const Bf16*, float*, float*);

}  // namespace penstock::cuda
