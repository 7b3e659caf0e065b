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

// Numbers that lie side by side: a thread that moves several at once keeps enough bytes in flight for the memory's rate.
template <typename Number, int kCount>
struct alignas(kCount * sizeof(Number)) Pack {
  Number at[kCount];
};
template <typename Number>
using Quad = Pack<Number, 4>;

// REQUIRES, of these two: the address is a multiple of the pack's bytes.
template <int kCount, typename Number>
__device__ inline Pack<Number, kCount> LoadPack(const Number* from) {
  return *reinterpret_cast<const Pack<Number, kCount>*>(from);
}
template <typename Number, int kCount>
__device__ inline void StorePack(Number* to, const Pack<Number, kCount>& pack) {
  *reinterpret_cast<Pack<Number, kCount>*>(to) = pack;
}

// Whether rows of that width, or a flat array, are made of quads.
inline bool IsInQuads(int64_t width, std::initializer_list<const void*> arrays) {
  uintptr_t addresses = 0;
  for (const void* array : arrays) addresses |= reinterpret_cast<uintptr_t>(array);
  return width % 4 == 0 && addresses % sizeof(Quad<float>) == 0;
}

template <int kLanes, typename Body>
__global__ void ForEachPackKernel(int64_t packs, Body body) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < packs) body.template At<kLanes>(at * kLanes);
}

// body.At<kLanes>(index of the first) for every kLanes numbers of [rows, width], none of them in two rows: 4 at a time where these
// arrays, of which it reads and writes packs, allow that, or else one.
template <typename Body>
void ForEachPack(cudaStream_t stream, int64_t rows, int64_t width,
                 std::initializer_list<const void*> arrays, const Body& body) {
  const int64_t count = rows * width;
  if (count == 0) return;
  if (IsInQuads(width, arrays)) {
    ForEachPackKernel<4><<<CeilDiv(count / 4, kBlock), kBlock, 0, stream>>>(count / 4, body);
  } else {
    ForEachPackKernel<1><<<CeilDiv(count, kBlock), kBlock, 0, stream>>>(count, body);
  }
}

}  // namespace penstock::cuda
