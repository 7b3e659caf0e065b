// Norms over channels, and images as numbers around 0.
#include "compute/cuda/kernels/channels.cuh"
#include "compute/cuda/kernels/for_each.cuh"
#include "compute/cuda/kernels/images.h"

namespace penstock::cuda {
namespace {

// output = (x - mean) / deviation * gain + bias, of each channel of [rows, width].
void NormalizeChannels(cudaStream_t stream, const BatchNormArguments& a, const float* x, float* y) {
  ForEach(stream, a.rows * a.width, [=] __device__(int64_t at) {
    const int64_t c = at % a.width;
    y[at] = (x[at] - a.mean[c]) * a.inverse_deviation[c] * a.gain[c] + a.bias[c];
  });
}

// The gradients of gain and bias: sums over the rows of [rows, width] of dy normal(row, channel) and of dy.
template <typename Normal>
void SumNormGradients(cudaStream_t stream, int64_t rows, int64_t width, float* workspace,
                      const float* dy, Normal normal, float* gain_sums, float* bias_sums) {
  SumChannels(
      stream, rows, width, workspace,
      [=] __device__(int64_t row, int64_t c) { return dy[row * width + c]; },
      [=] __device__(int64_t c, double sum) { bias_sums[c] = static_cast<float>(sum); });
  SumChannels(
      stream, rows, width, workspace,
      [=] __device__(int64_t row, int64_t c) { return dy[row * width + c] * normal(row, c); },
      [=] __device__(int64_t c, double sum) { gain_sums[c] = static_cast<float>(sum); });
}

// A block for each sample and group, whose elements are [area, width / groups].
struct Group {
  int64_t first;    // element of the sample, channel of the group
  int64_t channel;  // its first
  int64_t size;     // channels
  int64_t elements;
};

__device__ inline Group GroupOf(const GroupNormArguments& a) {
  const int64_t sample = blockIdx.x / a.groups;
  const int64_t group = blockIdx.x % a.groups;
  const int64_t size = a.width / a.groups;
  return {sample * a.area * a.width + group * size, group * size, size, a.area * size};
}

// Where element i of a group is in x.
__device__ inline int64_t ElementOf(const GroupNormArguments& a, const Group& group, int64_t i) {
  return group.first + i / group.size * a.width + i % group.size;
}

__global__ void GroupForwardKernel(GroupNormArguments a, const float* x, float* y) {
  const Group group = GroupOf(a);
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < group.elements; i += kBlock) sum += x[ElementOf(a, group, i)];
  const float mean = BlockSum(sum) / static_cast<float>(group.elements);
  float squares = 0.0f;
  for (int64_t i = threadIdx.x; i < group.elements; i += kBlock) {
    const float d = x[ElementOf(a, group, i)] - mean;
    squares += d * d;
  }
  const float inverse =
      1.0f / sqrtf(BlockSum(squares) / static_cast<float>(group.elements) + a.epsilon);
  if (threadIdx.x == 0) {
    a.mean[blockIdx.x] = mean;
    a.inverse_deviation[blockIdx.x] = inverse;
  }
  for (int64_t i = threadIdx.x; i < group.elements; i += kBlock) {
    const int64_t at = ElementOf(a, group, i);
    const int64_t c = group.channel + i % group.size;
    y[at] = (x[at] - mean) * inverse * a.gain[c] + a.bias[c];
  }
}

// With n = (x - mean) / deviation and g = dy * gain: dx = (g - mean(g) - n mean(g n)) / deviation.
__global__ void GroupBackwardKernel(GroupNormArguments a, const float* x, const float* dy,
                                    float* dx) {
  const Group group = GroupOf(a);
  const float mean = a.mean[blockIdx.x];
  const float inverse = a.inverse_deviation[blockIdx.x];
  float sum = 0.0f, dot = 0.0f;
  for (int64_t i = threadIdx.x; i < group.elements; i += kBlock) {
    const int64_t at = ElementOf(a, group, i);
    const float g = dy[at] * a.gain[group.channel + i % group.size];
    sum += g;
    dot += g * (x[at] - mean) * inverse;
  }
  sum = BlockSum(sum) / static_cast<float>(group.elements);
  dot = BlockSum(dot) / static_cast<float>(group.elements);
  for (int64_t i = threadIdx.x; i < group.elements; i += kBlock) {
    const int64_t at = ElementOf(a, group, i);
    const float g = dy[at] * a.gain[group.channel + i % group.size];
    dx[at] = (g - sum - (x[at] - mean) * inverse * dot) * inverse;
  }
}

}  // namespace

int64_t ChannelSumsWorkspaceFloats(int64_t rows, int64_t width) {
  return CeilDiv(rows, ChannelBandRows(rows)) * width;
}

void BatchNormTrain(cudaStream_t stream, const BatchNormArguments& arguments, double momentum,
                    bool updates, const float* x, float* y) {
  const BatchNormArguments a = arguments;
  SumChannels(
      stream, a.rows, a.width, a.workspace,
      [=] __device__(int64_t row, int64_t c) { return x[row * a.width + c]; },
      [=] __device__(int64_t c, double sum) {
        const double mean = sum / static_cast<double>(a.rows);
        a.mean[c] = static_cast<float>(mean);
        if (!updates) return;
        a.running_mean[c] =
            static_cast<float>((1.0 - momentum) * a.running_mean[c] + momentum * mean);
      });
  SumChannels(
      stream, a.rows, a.width, a.workspace,
      [=] __device__(int64_t row, int64_t c) {
        const float d = x[row * a.width + c] - a.mean[c];
        return d * d;
      },
      [=] __device__(int64_t c, double sum) {
        const double variance = sum / static_cast<double>(a.rows);
        a.inverse_deviation[c] = static_cast<float>(1.0 / sqrt(variance + a.epsilon));
        if (!updates) return;
        const double unbiased = sum / static_cast<double>(a.rows - 1);
        a.running_variance[c] =
            static_cast<float>((1.0 - momentum) * a.running_variance[c] + momentum * unbiased);
      });
  NormalizeChannels(stream, a, x, y);
}

void BatchNormEvaluate(cudaStream_t stream, const BatchNormArguments& arguments, const float* x,
                       float* y) {
  const BatchNormArguments a = arguments;
  ForEach(stream, a.width, [=] __device__(int64_t c) {
    a.mean[c] = a.running_mean[c];
    a.inverse_deviation[c] = 1.0f / sqrtf(a.running_variance[c] + a.epsilon);
  });
  NormalizeChannels(stream, a, x, y);
}

void BatchNormBackward(cudaStream_t stream, const BatchNormArguments& arguments, const float* x,
                       const float* dy, float* gain_sums, float* bias_sums, float* dx) {
  const BatchNormArguments a = arguments;
  SumNormGradients(
      stream, a.rows, a.width, a.workspace, dy,
      [=] __device__(int64_t row, int64_t c) {
        return (x[row * a.width + c] - a.mean[c]) * a.inverse_deviation[c];
      },
      gain_sums, bias_sums);
  if (dx == nullptr) return;
  // With n = (x - mean) / deviation: dx = gain (dy - mean(dy) - n mean(dy n)) / deviation.
  ForEach(stream, a.rows * a.width, [=] __device__(int64_t at) {
    const int64_t c = at % a.width;
    const float normal = (x[at] - a.mean[c]) * a.inverse_deviation[c];
    const float share = 1.0f / static_cast<float>(a.rows);
    dx[at] = a.gain[c] * a.inverse_deviation[c] *
             (dy[at] - bias_sums[c] * share - normal * gain_sums[c] * share);
  });
}

void GroupNormForward(cudaStream_t stream, const GroupNormArguments& arguments, const float* x,
                      float* y) {
  GroupForwardKernel<<<arguments.samples * arguments.groups, kBlock, 0, stream>>>(arguments, x, y);
}

void GroupNormBackward(cudaStream_t stream, const GroupNormArguments& arguments, const float* x,
                       const float* dy, float* gain_sums, float* bias_sums, float* dx) {
  const GroupNormArguments a = arguments;
  SumNormGradients(
      stream, a.samples * a.area, a.width, a.workspace, dy,
      [=] __device__(int64_t row, int64_t c) {
        const int64_t statistic = row / a.area * a.groups + c / (a.width / a.groups);
        return (x[row * a.width + c] - a.mean[statistic]) * a.inverse_deviation[statistic];
      },
      gain_sums, bias_sums);
  if (dx == nullptr) return;
  GroupBackwardKernel<<<a.samples * a.groups, kBlock, 0, stream>>>(a, x, dy, dx);
}

void LrnForward(cudaStream_t stream, const LrnSizes& sizes, const float* x, float* scales,
                float* y) {
  const LrnSizes s = sizes;
  ForEach(stream, s.rows * s.width, [=] __device__(int64_t at) {
    const int64_t c = at % s.width;
    const float* row = x + (at - c);
    const int64_t first = max(c - s.size / 2, int64_t{0});
    const int64_t end = min(c + (s.size - 1) / 2 + 1, s.width);
    float squares = 0.0f;
    for (int64_t i = first; i < end; ++i) squares += row[i] * row[i];
    const float scale = s.k + s.alpha / static_cast<float>(s.size) * squares;
    scales[at] = scale;
    y[at] = x[at] * powf(scale, -s.beta);
  });
}

// dx = dy scale^-beta - 2 alpha beta / size x * the sum of dy x scale^(-beta - 1) over the channels that see this one.
void LrnBackward(cudaStream_t stream, const LrnSizes& sizes, const float* x, const float* scales,
                 const float* dy, float* dx) {
  const LrnSizes s = sizes;
  ForEach(stream, s.rows * s.width, [=] __device__(int64_t at) {
    const int64_t c = at % s.width;
    const int64_t row = at - c;
    const int64_t first = max(c - (s.size - 1) / 2, int64_t{0});
    const int64_t end = min(c + s.size / 2 + 1, s.width);
    float sum = 0.0f;
    for (int64_t i = row + first; i < row + end; ++i) {
      sum += dy[i] * x[i] * powf(scales[i], -s.beta - 1.0f);
    }
    const float slope = 2.0f * s.alpha * s.beta / static_cast<float>(s.size);
    dx[at] = dy[at] * powf(scales[at], -s.beta) - slope * x[at] * sum;
  });
}

// Each operation is rounded by itself, as the CPU's code does.
template <typename Value>
void NormalizeImages(cudaStream_t stream, int64_t count, int64_t channels, const Value* x,
                     const double* table, float* y) {
  ForEach(stream, count, [=] __device__(int64_t at) {
    const int64_t c = at % channels;
    const double scaled = __dmul_rn(static_cast<double>(x[at]), table[c]);
    y[at] = static_cast<float>(__dsub_rn(scaled, table[channels + c]));
  });
}
template void NormalizeImages<uint8_t>(cudaStream_t, int64_t, int64_t, const uint8_t*,
                                       const double*, float*);
template void NormalizeImages<float>(cudaStream_t, int64_t, int64_t, const float*, const double*,
                                     float*);

void NormalizeImagesBackward(cudaStream_t stream, int64_t count, int64_t channels, const float* dy,
                             const double* table, float* dx) {
  ForEach(stream, count, [=] __device__(int64_t at) {
    dx[at] = static_cast<float>(static_cast<double>(dy[at]) * table[at % channels]);
  });
}

}  // namespace penstock::cuda
