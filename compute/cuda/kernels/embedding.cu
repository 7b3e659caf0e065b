// Token and position embedding.
#include <cub/device/device_radix_sort.cuh>

#include "compute/cuda/kernels/common.cuh"
#include "compute/cuda/kernels/id_windows.h"
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

// A block for each window and kBlock columns.
__global__ void TokensKernel(IdOrder o, const float* gradient, DeviceMask dropout,
                             DeviceMask row_drop, float* tokens, float* sums) {
  const int64_t column = int64_t{blockIdx.y} * kBlock + threadIdx.x;
  if (column >= o.width) return;
  AddIdWindow(o, blockIdx.x, column, tokens, sums, [&](int64_t row, int32_t id) {
    return gradient[row * o.width + column] * DropoutFactor(row_drop, id, 1, 0) *
           DropoutFactor(dropout, row, o.width, column);
  });
}

__global__ void TokensAcrossKernel(IdOrder o, float* tokens, const float* sums) {
  const int64_t column = int64_t{blockIdx.y} * kBlock + threadIdx.x;
  if (column < o.width) AddIdAcrossWindows(o, blockIdx.x, column, tokens, sums);
}

void AddTokens(cudaStream_t stream, const IdOrder& o, const float* gradient,
               const DeviceMask& dropout, const DeviceMask& row_drop, float* tokens, float* sums) {
  const dim3 grid(static_cast<uint32_t>(IdWindows(o.rows)),
                  static_cast<uint32_t>(CeilDiv(o.width, kBlock)));
  TokensKernel<<<grid, kBlock, 0, stream>>>(o, gradient, dropout, row_drop, tokens, sums);
  TokensAcrossKernel<<<grid, kBlock, 0, stream>>>(o, tokens, sums);
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
                       float* tokens, float* positions, float* sums) {
  AddTokens(stream, {rows, width, order}, gradient, dropout, DeviceMask(), tokens, sums);
  PositionsKernel<<<CeilDiv(time * width, kBlock), kBlock, 0, stream>>>(rows, time, width, gradient,
                                                                        dropout, positions);
}

void LookUpBackward(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* order,
                    const float* gradient, const DeviceMask& row_drop, float* table, float* sums) {
  AddTokens(stream, {rows, width, order}, gradient, DeviceMask(), row_drop, table, sums);
}

}  // namespace penstock::cuda
