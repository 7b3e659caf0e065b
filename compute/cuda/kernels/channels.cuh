// Sums over the rows of [rows, width], channel by channel, in two steps: bands of rows, then the bands.
#pragma once

#include "compute/cuda/kernels/common.cuh"

namespace penstock::cuda {

// Rows of a band, so that there are at most 4096 bands (a grid has at most 65535).
inline __host__ __device__ int64_t ChannelBandRows(int64_t rows) {
  return rows <= 64 * 4096 ? 64 : (rows + 4095) / 4096;
}

// bands [bands, width]: the sums of value(row, channel) over a band's rows.
template <typename Value>
__global__ void ChannelBandsKernel(int64_t rows, int64_t width, Value value, float* bands) {
  const int64_t channel = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (channel >= width) return;
  const int64_t first = int64_t{blockIdx.y} * ChannelBandRows(rows);
  const int64_t end = min(first + ChannelBandRows(rows), rows);
  float sum = 0.0f;
  for (int64_t row = first; row < end; ++row) sum += value(row, channel);
  bands[int64_t{blockIdx.y} * width + channel] = sum;
}

// A block for each channel.
template <typename Finish>
__global__ void ChannelTotalsKernel(int64_t count, int64_t width, const float* bands,
                                    Finish finish) {
  const int64_t channel = blockIdx.x;
  double sum = 0.0;
  for (int64_t band = threadIdx.x; band < count; band += kBlock) {
    sum += bands[band * width + channel];
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) finish(channel, sum);
}

// finish(channel, sum in double of value(row, channel) over the rows). workspace: ChannelSumsWorkspaceFloats.
template <typename Value, typename Finish>
void SumChannels(cudaStream_t stream, int64_t rows, int64_t width, float* workspace, Value value,
                 Finish finish) {
  const int64_t bands = CeilDiv(rows, ChannelBandRows(rows));
  const dim3 grid(static_cast<uint32_t>(CeilDiv(width, kBlock)), static_cast<uint32_t>(bands));
  ChannelBandsKernel<<<grid, kBlock, 0, stream>>>(rows, width, value, workspace);
  ChannelTotalsKernel<<<width, kBlock, 0, stream>>>(bands, width, workspace, finish);
}

}  // namespace penstock::cuda
