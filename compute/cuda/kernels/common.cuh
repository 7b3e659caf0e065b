// Device code that the kernels share: numbers, sums over warps and blocks, dropout masks.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "compute/cuda/kernels/kernels.h"

namespace penstock::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kBlock = 256;

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

__device__ inline float ToFloat(float value) { return value; }
__device__ inline float ToFloat(Bf16 bits) { return __uint_as_float(uint32_t{bits} << 16); }

template <typename Number>
__device__ inline Number FromFloat(float value);
template <>
__device__ inline float FromFloat<float>(float value) {
  return value;
}
// To nearest, ties to even.
template <>
__device__ inline Bf16 FromFloat<Bf16>(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

template <typename T>
__device__ inline T WarpSum(T value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFF, value, lane);
  }
  return value;
}

__device__ inline float WarpMax(float value) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFF, value, lane));
  }
  return value;
}

// Over a block of kThreads; every thread gets the sum.
template <int kThreads = kBlock, typename T>
__device__ inline T BlockSum(T value) {
  __shared__ T warps[kThreads / kWarp];
  value = WarpSum(value);
  __syncthreads();  // a call before may still be reading
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  T sum = 0;
  for (int warp = 0; warp < kThreads / kWarp; ++warp) sum += warps[warp];
  return sum;
}

// Over a block that works on a row: this thread's part of the target's rank, as Tape::ranks has it.
template <int kThreads = kBlock, typename Number>
__device__ int HigherScores(const Number* scores, int64_t classes, int32_t target) {
  const float score = ToFloat(scores[target]);
  int higher = 0;
  for (int64_t c = threadIdx.x; c < classes; c += kThreads) {
    const float other = ToFloat(scores[c]);
    if (other > score || (other == score && c < target)) ++higher;
  }
  return higher;
}

template <int kThreads = kBlock>
__device__ inline float BlockMax(float value) {
  __shared__ float warps[kThreads / kWarp];
  value = WarpMax(value);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  float maximum = warps[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) maximum = fmaxf(maximum, warps[warp]);
  return maximum;
}

// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Returns the same
// numbers as base/random.h.
__device__ inline uint4 Philox(uint64_t key, uint4 c) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c.x);
    const uint32_t low0 = 0xD2511F53u * c.x;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c.z);
    const uint32_t low1 = 0xCD9E8D57u * c.z;
    c = make_uint4(high1 ^ c.y ^ key0, low1, high0 ^ c.w ^ key1, low0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

// One of the four by its number. Not an array: one that is indexed by a number known only when it runs lies in local memory.
__device__ inline uint32_t WordOf(const uint4& words, int number) {
  const uint32_t low = number == 0 ? words.x : words.y;
  const uint32_t high = number == 2 ? words.z : words.w;
  return number < 2 ? low : high;
}

// The numbering of compute/rounding.h.
__device__ inline Bf16 RoundAtRandom(float value, int64_t element, const StochasticRounding& r) {
  if (value != value) return FromFloat<Bf16>(value);
  const auto counter = static_cast<uint32_t>(element / 64 * 16 + element % 16);
  const uint4 random =
      Philox(r.key, make_uint4(counter, static_cast<uint32_t>(r.parameter),
                               static_cast<uint32_t>(r.parameter >> 32), r.version));
  const uint32_t word = WordOf(random, static_cast<int>(element % 64 / 16));
  return static_cast<Bf16>(StochasticBf16(__float_as_uint(value), word));
}

// Returns dropout's factor for an element: 0 or the scale. Elements are numbered as in
// compute/cpu/kernels/dropout.h: groups of 64 columns, column 16 w + l of a group is word w of counter l.
__device__ inline float DropoutFactor(const DeviceMask& d, int64_t row, int64_t width,
                                      int64_t column) {
  if (d.drop_below == 0) return 1.0f;
  const int64_t groups = (width + 63) / 64;
  const int64_t group = column / 64;
  const int lane = static_cast<int>(column % 16);
  const int word = static_cast<int>(column % 64 / 16);
  const int64_t first_sample = d.first_sample_at == nullptr ? d.first_sample : *d.first_sample_at;
  const auto sample = static_cast<uint64_t>(first_sample + row / d.time);
  const auto first = static_cast<uint32_t>((row % d.time * groups + group) * 16);
  const uint4 random =
      Philox(d.key, make_uint4(first + lane, d.layer, static_cast<uint32_t>(sample),
                               static_cast<uint32_t>(sample >> 32)));
  return WordOf(random, word) < d.drop_below ? 0.0f : d.scale;
}

}  // namespace penstock::cuda
