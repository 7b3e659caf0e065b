#include <cuda_fp8.h>

#include <algorithm>

#include "compute/cuda/kernels/for_each.cuh"
#include "compute/cuda/kernels/fp8.h"

namespace penstock::cuda {
namespace {

constexpr int kPack = 8;  // numbers of bf16 in 16 bytes
constexpr int kTile = 32;
constexpr int kTileRows = 8;  // of threads, each of which takes every eighth row of a tile
constexpr int64_t kBlocksMax = 1024;

__global__ void LargestKernel(int64_t packs, const Bf16* values, Fp8Scale* scale) {
  __shared__ uint32_t of_block;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  uint32_t largest = 0;
  for (int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < packs;
       at += int64_t{gridDim.x} * blockDim.x) {
    const auto pack = LoadPack<kPack>(values + at * kPack);
    for (int i = 0; i < kPack; ++i) largest = max(largest, uint32_t{pack.at[i]} & 0x7FFF);
  }
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, lane));
  }
  if (threadIdx.x % kWarp == 0) atomicMax(&of_block, largest);
  __syncthreads();
  if (threadIdx.x == 0)
    atomicMax(&scale->largest, of_block << 16);  // bits of bf16 are a float's upper half
}

// What numbers are multiplied by. Those of an operand that is not finite do not matter: the product is NaN.
template <Fp8 kFormat>
__device__ float ScaleOf(uint32_t largest) {
  if (largest >= kInfiniteBits) return 1.0f;
  return __uint_as_float(BitsOfPowerOfTwo(Fp8ScaleExponent(kFormat, largest)));
}

template <Fp8 kFormat>
__device__ void WriteInverse(Fp8Scale* scale) {
  if (blockIdx.x != 0 || blockIdx.y != 0 || threadIdx.x != 0 || threadIdx.y != 0) return;
  const uint32_t largest = scale->largest;
  scale->inverse = largest < kInfiniteBits ? 1.0f / ScaleOf<kFormat>(largest) : nanf("");
}

template <Fp8 kFormat>
__device__ uint8_t Round(float scaled) {
  return __nv_cvt_float_to_fp8(scaled, __NV_SATFINITE,
                               kFormat == Fp8::kE4M3 ? __NV_E4M3 : __NV_E5M2);
}

template <Fp8 kFormat>
__global__ void RoundKernel(int64_t packs, const Bf16* from, uint8_t* to, Fp8Scale* scale) {
  WriteInverse<kFormat>(scale);
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= packs) return;
  const float factor = ScaleOf<kFormat>(scale->largest);
  const auto pack = LoadPack<kPack>(from + at * kPack);
  Pack<uint8_t, kPack> rounded;
#pragma unroll
  for (int i = 0; i < kPack; ++i) rounded.at[i] = Round<kFormat>(ToFloat(pack.at[i]) * factor);
  StorePack(to + at * kPack, rounded);
}

// A block takes a tile of kTile rows and columns through shared memory, so that it reads and writes whole lines of them.
template <Fp8 kFormat>
__global__ void RoundTransposedKernel(int64_t rows, int64_t columns, const Bf16* from, uint8_t* to,
                                      Fp8Scale* scale) {
  __shared__ uint8_t tile[kTile][kTile + 4];
  WriteInverse<kFormat>(scale);
  const float factor = ScaleOf<kFormat>(scale->largest);
  const int64_t column = int64_t{blockIdx.x} * kTile;
  const int64_t row = int64_t{blockIdx.y} * kTile;
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    if (row + i >= rows || column + threadIdx.x >= columns) continue;
    const Bf16 number = from[(row + i) * columns + column + threadIdx.x];
    tile[i][threadIdx.x] = Round<kFormat>(ToFloat(number) * factor);
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    if (column + i >= columns || row + threadIdx.x >= rows) continue;
    to[(column + i) * rows + row + threadIdx.x] = tile[threadIdx.x][i];
  }
}

template <Fp8 kFormat>
void Queue(cudaStream_t stream, bool transposed, int64_t rows, int64_t columns, const Bf16* from,
           uint8_t* to, Fp8Scale* scale) {
  if (!transposed) {
    const int64_t packs = rows * columns / kPack;
    RoundKernel<kFormat><<<CeilDiv(packs, kBlock), kBlock, 0, stream>>>(packs, from, to, scale);
    return;
  }
  const dim3 tiles(CeilDiv(columns, kTile), CeilDiv(rows, kTile));
  RoundTransposedKernel<kFormat>
      <<<tiles, dim3(kTile, kTileRows), 0, stream>>>(rows, columns, from, to, scale);
}

}  // namespace

void RoundToFp8(cudaStream_t stream, Fp8 format, bool transposed, int64_t rows, int64_t columns,
                const Bf16* from, uint8_t* to, Fp8Scale* scale) {
  (void)cudaMemsetAsync(&scale->largest, 0, sizeof(scale->largest), stream);
  const int64_t packs = rows * columns / kPack;
  const int64_t blocks = std::min(CeilDiv(packs, kBlock), kBlocksMax);
  LargestKernel<<<blocks, kBlock, 0, stream>>>(packs, from, scale);
  if (format == Fp8::kE4M3) {
    Queue<Fp8::kE4M3>(stream, transposed, rows, columns, from, to, scale);
  } else {
    Queue<Fp8::kE5M2>(stream, transposed, rows, columns, from, to, scale);
  }
}

}  // namespace penstock::cuda
