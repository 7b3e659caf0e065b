// Kernels for images and channels: convolution where cuDNN has none, poolings, norms over channels.
//
// Images are [samples, height, width, channels], filters [outputs, inputs of a group, height, width]. As in
// kernels.h: functions queue and return, sums run in a fixed order. C++17, for nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "compute/cuda/kernels/kernels.h"

namespace penstock::cuda {

// One axis of a window (model/window.h): output i sees inputs i * stride - before + k * dilation, k in 0 .. kernel - 1.
struct ImageAxis {
  int64_t inputs, outputs;
  int64_t kernel, stride, dilation, before;
};

struct ConvolutionSizes {
  int64_t samples;
  int64_t inputs, outputs;  // channels
  int64_t groups;           // divides both
  ImageAxis height, width;
};

// The plain sums. For what cuDNN refuses.
template <typename Number>
void ConvolutionForward(cudaStream_t stream, const ConvolutionSizes& sizes, const Number* x,
                        const Number* filters, float* y);
template <typename Number>
void ConvolutionBackwardInput(cudaStream_t stream, const ConvolutionSizes& sizes, const Number* dy,
                              const Number* filters, float* dx);
// dw += the gradient of the filters.
template <typename Number>
void ConvolutionBackwardWeight(cudaStream_t stream, const ConvolutionSizes& sizes, const Number* x,
                               const Number* dy, float* dw);

// to [count, columns, rows] = from [count, rows, columns]: channels of images or filters, or their pixels, last.
template <typename Number>
void TransposeEach(cudaStream_t stream, int64_t count, int64_t rows, int64_t columns,
                   const Number* from, Number* to);
// Added to what `to` holds.
template <typename Number>
void AddTransposedEach(cudaStream_t stream, int64_t count, int64_t rows, int64_t columns,
                       const Number* from, float* to);

// y = the largest of each window; places: of y's elements, which of the window's elements it was (the first of equals).
// REQUIRES: every window sees an element; dilations are 1.
void MaxPoolForward(cudaStream_t stream, int64_t samples, int64_t channels, const ImageAxis& height,
                    const ImageAxis& width, const float* x, float* y, int32_t* places);
void MaxPoolBackward(cudaStream_t stream, int64_t samples, int64_t channels,
                     const ImageAxis& height, const ImageAxis& width, const float* dy,
                     const int32_t* places, float* dx);

// y = the sum of each window, divided by the window's whole size. An axis whose kernel is 0 is cut into its outputs:
// output i sees inputs floor(i inputs / outputs) to ceil((i + 1) inputs / outputs).
void AvgPoolForward(cudaStream_t stream, int64_t samples, int64_t channels, const ImageAxis& height,
                    const ImageAxis& width, const float* x, float* y);
void AvgPoolBackward(cudaStream_t stream, int64_t samples, int64_t channels,
                     const ImageAxis& height, const ImageAxis& width, const float* dy, float* dx);

// y [samples, heights, widths, outputs] = the pixels of x that windows of one pixel see, zeros in the channels that x,
// with `inputs` channels, has not.
void SubsampleForward(cudaStream_t stream, int64_t samples, int64_t inputs, int64_t outputs,
                      const ImageAxis& height, const ImageAxis& width, const float* x, float* y);
void SubsampleBackward(cudaStream_t stream, int64_t samples, int64_t inputs, int64_t outputs,
                       const ImageAxis& height, const ImageAxis& width, const float* dy, float* dx);

// y = value * factors[channel] - offsets[channel], in double, of bytes or floats. table: factors, then offsets.
template <typename Value>
void NormalizeImages(cudaStream_t stream, int64_t count, int64_t channels, const Value* x,
                     const double* table, float* y);
// dx = dy * factors[channel].
void NormalizeImagesBackward(cudaStream_t stream, int64_t count, int64_t channels, const float* dy,
                             const double* table, float* dx);

// y = x / scale^beta, scale = k + alpha / size * the sum of squares of channels c - size / 2 .. c + (size - 1) / 2.
struct LrnSizes {
  int64_t rows, width;  // width: channels
  int64_t size;
  float alpha, beta, k;
};
// scales [rows, width]: for the backward pass.
void LrnForward(cudaStream_t stream, const LrnSizes& sizes, const float* x, float* scales,
                float* y);
void LrnBackward(cudaStream_t stream, const LrnSizes& sizes, const float* x, const float* scales,
                 const float* dy, float* dx);

// Sums over the rows of [rows, width] are made in two steps, with the partial sums in a workspace of this size.
int64_t ChannelSumsWorkspaceFloats(int64_t rows, int64_t width);

// Batch norm of [rows, width]. All arrays but x, y and their gradients are [width].
struct BatchNormArguments {
  int64_t rows, width;
  float epsilon;
  const float* gain;
  const float* bias;
  float* mean;
  float* inverse_deviation;
  float* running_mean;
  float* running_variance;
  float* workspace;  // ChannelSumsWorkspaceFloats(rows, width)
};
// Statistics of the rows, of which there are at least two. Where `updates`, the running ones move by `momentum` towards
// them: the variance's to the unbiased one.
void BatchNormTrain(cudaStream_t stream, const BatchNormArguments& arguments, double momentum,
                    bool updates, const float* x, float* y);
// With the running statistics.
void BatchNormEvaluate(cudaStream_t stream, const BatchNormArguments& arguments, const float* x,
                       float* y);
// gain_sums, bias_sums [width]: gradients of gain and bias, written. dx: or null.
void BatchNormBackward(cudaStream_t stream, const BatchNormArguments& arguments, const float* x,
                       const float* dy, float* gain_sums, float* bias_sums, float* dx);

// Group norm of [samples, area, width], statistics [samples, groups].
struct GroupNormArguments {
  int64_t samples, area, width, groups;
  float epsilon;
  const float* gain;  // [width]
  const float* bias;
  float* mean;
  float* inverse_deviation;
  float* workspace;  // ChannelSumsWorkspaceFloats(samples * area, width)
};
void GroupNormForward(cudaStream_t stream, const GroupNormArguments& arguments, const float* x,
                      float* y);
// As BatchNormBackward.
void GroupNormBackward(cudaStream_t stream, const GroupNormArguments& arguments, const float* x,
                       const float* dy, float* gain_sums, float* bias_sums, float* dx);

}  // namespace penstock::cuda
