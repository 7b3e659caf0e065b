// A kernel for each index of a flat array.
#pragma once

#include "compute/cuda/kernels/common.cuh"

namespace penstock::cuda {

template <typename Body>
__global__ void ForEachKernel(int64_t count, Body body) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < count) body(at);
}

// body(index) for 0 .. count - 1.
template <typename Body>
void ForEach(cudaStream_t stream, int64_t count, Body body) {
  if (count == 0) return;
  ForEachKernel<<<CeilDiv(count, kBlock), kBlock, 0, stream>>>(count, body);
}

}  // namespace penstock::cuda
