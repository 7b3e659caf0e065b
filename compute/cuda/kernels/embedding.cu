// Token and position embedding.
#include <cub/device/device_radix_sort.cuh>

#include "compute/cuda/kernels/common.cuh"
#include "compute/cuda/kernels/values.h"

namespace penstock::cuda {
namespace {

__global__ void ForwardKernel(int64_t rows, int64_t time, int64_t width, const int32_t* ids,
                              const float* tokens, const float* positions, DeviceMask dropout,
                              float* output) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= rows * width) return;
  const int64_t row = at / width;
  const int64_t column = at % width;
  const float sum = tokens[ids[row] * width + column] + positions[row % time * width + column];
  output[at] = sum * DropoutFactor(dropout, row, width, column);
}

__global__ void NumberRows(int64_t rows, int32_t* numbers) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row < rows) numbers[row] = static_cast<int32_t>(row);
}

// The first place after `place` whose id is another.
__device__ int64_t EndOfId(int64_t rows, const int32_t* order, int64_t place) {
  const int32_t id = order[place];
  int64_t same = place, other = rows;
  while (other - same > 1) {
    const int64_t middle = (same + other) / 2;
    (order[middle] == id ? same : other) = middle;
  }
  return other;
}

// Blocks for each place in the sorted rows and kBlock columns; those of the first place of an id add all rows of that id.
__global__ void TokensKernel(int64_t rows, int64_t width, const int32_t* order,
                             const float* gradient, DeviceMask dropout, DeviceMask row_drop,
                             float* tokens) {
  const int64_t place = blockIdx.x;
  const int32_t id = order[place];
  if (place > 0 && order[place - 1] == id) return;
  const int64_t column = int64_t{blockIdx.y} * kBlock + threadIdx.x;
  if (column >= width) return;
  const float id_factor = DropoutFactor(row_drop, id, 1, 0);
  const int64_t end = EndOfId(rows, order, place);
  float sum = tokens[id * width + column];
  // A text has few bytes and many rows of each: several are loaded at once, and added in order.
#pragma unroll 16
  for (int64_t next = place; next < end; ++next) {
    const int64_t row = order[rows + next];
    const float factor = id_factor * DropoutFactor(dropout, row, width, column);
    sum += gradient[row * width + column] * factor;
  }
  tokens[id * width + column] = sum;
}

dim3 TokensGrid(int64_t rows, int64_t width) {
  return dim3(static_cast<uint32_t>(rows), static_cast<uint32_t>(CeilDiv(width, kBlock)));
}

__global__ void PositionsKernel(int64_t rows, int64_t time, int64_t width, const float* gradient,
                                DeviceMask dropout, float* positions) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= time * width) return;
  const int64_t column = at % width;
  float sum = positions[at];
  for (int64_t row = at / width; row < rows; row += time) {
    sum += gradient[row * width + column] * DropoutFactor(dropout, row, width, column);
  }
  positions[at] = sum;
}

int BitsOf(int64_t vocabulary) {
  int bits = 1;
  while (bits < 31 && int64_t{1} << bits < vocabulary) ++bits;
  return bits;
}

// Sorts rows by id; cub's radix sort is stable, so rows of one id stay ascending.
cudaError_t Sort(void* workspace, size_t& bytes, int64_t rows, int64_t vocabulary,
                 const int32_t* ids, int32_t* order, const int32_t* numbers, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(workspace, bytes, ids, order, numbers, order + rows,
                                         static_cast<int>(rows), 0, BitsOf(vocabulary), stream);
}

int64_t NumbersBytes(int64_t rows) {
  return CeilDiv(rows * static_cast<int64_t>(sizeof(int32_t)), 256) * 256;
}

}  // namespace

void EmbeddingForward(cudaStream_t stream, int64_t rows, int64_t time, int64_t width,
                      const int32_t* ids, const float* tokens, const float* positions,
                      const DeviceMask& dropout, float* output) {
  ForwardKernel<<<CeilDiv(rows * width, kBlock), kBlock, 0, stream>>>(
      rows, time, width, ids, tokens, positions, dropout, output);
}

int64_t SortRowsWorkspaceBytes(int64_t rows) {
  size_t bytes = 0;
  Sort(nullptr, bytes, rows, INT32_MAX, nullptr, nullptr, nullptr, nullptr);
  return NumbersBytes(rows) + static_cast<int64_t>(bytes);
}

cudaError_t SortRows(cudaStream_t stream, int64_t rows, int64_t vocabulary, const int32_t* ids,
                     int32_t* order, void* workspace, int64_t workspace_bytes) {
  auto* numbers = static_cast<int32_t*>(workspace);
  NumberRows<<<CeilDiv(rows, kBlock), kBlock, 0, stream>>>(rows, numbers);
  auto bytes = static_cast<size_t>(workspace_bytes - NumbersBytes(rows));
  return Sort(static_cast<char*>(workspace) + NumbersBytes(rows), bytes, rows, vocabulary, ids,
              order, numbers, stream);
}

void EmbeddingBackward(cudaStream_t stream, int64_t rows, int64_t time, int64_t width,
                       const int32_t* order, const float* gradient, const DeviceMask& dropout,
                       float* tokens, float* positions) {
  TokensKernel<<<TokensGrid(rows, width), kBlock, 0, stream>>>(rows, width, order, gradient,
                                                               dropout, DeviceMask(), tokens);
  PositionsKernel<<<CeilDiv(time * width, kBlock), kBlock, 0, stream>>>(rows, time, width, gradient,
                                                                        dropout, positions);
}

void LookUpBackward(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* order,
                    const float* gradient, const DeviceMask& row_drop, float* table) {
  TokensKernel<<<TokensGrid(rows, width), kBlock, 0, stream>>>(rows, width, order, gradient,
                                                               DeviceMask(), row_drop, table);
}

}  // namespace penstock::cuda
