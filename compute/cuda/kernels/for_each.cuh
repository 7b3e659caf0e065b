// A kernel for each index of a flat array.
#pragma once

#include <cstdint>
#include <initializer_list>

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

// Four numbers that lie side by side: a thread that moves them at once keeps enough bytes in flight for the memory's rate.
template <typename Number>
struct alignas(4 * sizeof(Number)) Quad {
  Number at[4];
};

// Whether rows of that width, or a flat array, are made of quads.
inline bool IsInQuads(int64_t width, std::initializer_list<const void*> arrays) {
  uintptr_t addresses = 0;
  for (const void* array : arrays) addresses |= reinterpret_cast<uintptr_t>(array);
  return width % 4 == 0 && addresses % sizeof(Quad<float>) == 0;
}

template <typename Number>
__device__ inline Quad<Number> LoadQuad(const Number* from) {
  return *reinterpret_cast<const Quad<Number>*>(from);
}
template <typename Number>
__device__ inline void StoreQuad(Number* to, const Quad<Number>& quad) {
  *reinterpret_cast<Quad<Number>*>(to) = quad;
}

}  // namespace penstock::cuda
