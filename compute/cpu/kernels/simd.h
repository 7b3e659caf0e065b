// Vectors of floats as wide as the instruction set this file is compiled for, through the compiler's
// vector types: arithmetic is written once and becomes SSE, AVX2 or AVX-512 instructions.
//
// Everything here has internal linkage on purpose. This source is compiled for several instruction sets;
// were these functions shared, the linker would keep one copy, and a machine without AVX-512 might run
// the AVX-512 one. For the same reason nothing inline of the standard library is used here.
#pragma once

#include <cstdint>
#if defined(__AVX512F__)
#include <immintrin.h>  // its functions are always inline
#endif

#include "compute/cpu/kernels/kernels.h"

namespace penstock {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));
using Words = uint32_t __attribute__((vector_size(4 * kLanes)));
using HalfWords = uint16_t __attribute__((vector_size(2 * kLanes)));
using Doubles = double __attribute__((vector_size(8 * kLanes)));
using LongWords = uint64_t __attribute__((vector_size(8 * kLanes)));

#define PENSTOCK_INLINE inline __attribute__((always_inline))

// The lanes of a vector that take part: all, or the first few at the end of a row.
struct All {};
struct First {
  int64_t count;
};

// body(column, lanes) over columns 0 .. count in steps of a vector.
template <typename Body>
PENSTOCK_INLINE void ForVectors(int64_t count, Body body) {
  int64_t column = 0;
  for (; column + kLanes <= count; column += kLanes) {
    body(column, All());
  }
  if (column < count) {
    body(column, First{count - column});
  }
}

PENSTOCK_INLINE Floats Broadcast(float value) { return value - Floats{}; }

PENSTOCK_INLINE Floats Load(const float* from, All) {
  Floats values;
  __builtin_memcpy(&values, from, sizeof(values));
  return values;
}
PENSTOCK_INLINE void Store(Floats values, float* to, All) {
  __builtin_memcpy(to, &values, sizeof(values));
}

// The first lanes of a vector. Other lanes load as zero; their memory is neither read nor written.
#if defined(__AVX512F__)
PENSTOCK_INLINE __mmask16 MaskOf(First lanes) {
  return static_cast<__mmask16>((1u << lanes.count) - 1);
}
PENSTOCK_INLINE Floats Load(const float* from, First lanes) {
  return reinterpret_cast<Floats>(_mm512_maskz_loadu_ps(MaskOf(lanes), from));
}
PENSTOCK_INLINE Floats LoadOr(const float* from, Floats other, First lanes) {
  return reinterpret_cast<Floats>(
      _mm512_mask_loadu_ps(reinterpret_cast<__m512>(other), MaskOf(lanes), from));
}
PENSTOCK_INLINE void Store(Floats values, float* to, First lanes) {
  _mm512_mask_storeu_ps(to, MaskOf(lanes), reinterpret_cast<__m512>(values));
}
PENSTOCK_INLINE HalfWords LoadHalves(const Bf16* from, First lanes) {
  return reinterpret_cast<HalfWords>(_mm256_maskz_loadu_epi16(MaskOf(lanes), from));
}
PENSTOCK_INLINE void Store(HalfWords halves, Bf16* to, First lanes) {
  _mm256_mask_storeu_epi16(to, MaskOf(lanes), reinterpret_cast<__m256i>(halves));
}
PENSTOCK_INLINE Floats Masked(Floats values, First lanes) {
  return reinterpret_cast<Floats>(
      _mm512_maskz_mov_ps(MaskOf(lanes), reinterpret_cast<__m512>(values)));
}
#else
PENSTOCK_INLINE Floats Load(const float* from, First lanes) {
  Floats values = {};
  __builtin_memcpy(&values, from, lanes.count * sizeof(float));
  return values;
}
PENSTOCK_INLINE Floats LoadOr(const float* from, Floats other, First lanes) {
  __builtin_memcpy(&other, from, lanes.count * sizeof(float));
  return other;
}
PENSTOCK_INLINE void Store(Floats values, float* to, First lanes) {
  __builtin_memcpy(to, &values, lanes.count * sizeof(float));
}
PENSTOCK_INLINE HalfWords LoadHalves(const Bf16* from, First lanes) {
  HalfWords halves = {};
  __builtin_memcpy(&halves, from, lanes.count * sizeof(Bf16));
  return halves;
}
PENSTOCK_INLINE void Store(HalfWords halves, Bf16* to, First lanes) {
  __builtin_memcpy(to, &halves, lanes.count * sizeof(Bf16));
}
PENSTOCK_INLINE Floats Masked(Floats values, First lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    values[lane] = lane < lanes.count ? values[lane] : 0.0f;
  }
  return values;
}
#endif
// Zeroes the lanes that do not take part.
PENSTOCK_INLINE Floats Masked(Floats values, All) { return values; }
// Lanes that do not take part are those of `other`.
PENSTOCK_INLINE Floats LoadOr(const float* from, Floats, All) { return Load(from, All()); }

PENSTOCK_INLINE Floats FromBf16(HalfWords halves) {
  return reinterpret_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
}
// Rounds to nearest even; a NaN stays one.
PENSTOCK_INLINE HalfWords ToBf16(Floats values) {
  const Words bits = reinterpret_cast<Words>(values);
  const Words rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const Words quiet = (bits >> 16) | 0x40u;
  return __builtin_convertvector(values == values ? rounded : quiet, HalfWords);
}
PENSTOCK_INLINE Floats Rounded(Floats values) { return FromBf16(ToBf16(values)); }
PENSTOCK_INLINE Floats Load(const Bf16* from, All) {
  HalfWords halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
  return FromBf16(halves);
}
PENSTOCK_INLINE Floats Load(const Bf16* from, First lanes) {
  return FromBf16(LoadHalves(from, lanes));
}
PENSTOCK_INLINE void Store(HalfWords halves, Bf16* to, All) {
  __builtin_memcpy(to, &halves, sizeof(halves));
}
PENSTOCK_INLINE void Store(Floats values, Bf16* to, All lanes) { Store(ToBf16(values), to, lanes); }
PENSTOCK_INLINE void Store(Floats values, Bf16* to, First lanes) {
  Store(ToBf16(values), to, lanes);
}

// Where one of the two is not a number, the result is `b`.
PENSTOCK_INLINE Floats Max(Floats a, Floats b) { return a > b ? a : b; }
PENSTOCK_INLINE Floats Min(Floats a, Floats b) { return a < b ? a : b; }
PENSTOCK_INLINE Floats Sqrt(Floats values) {
  Floats roots;
  for (int lane = 0; lane < kLanes; ++lane) {
    roots[lane] = __builtin_sqrtf(values[lane]);
  }
  return roots;
}

// Lanes added as a balanced tree: those of the upper half to the lower, and so on.
template <typename Vector>
PENSTOCK_INLINE auto SumLanes(Vector values) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) {
      values[lane] += values[lane + half];
    }
  }
  return values[0];
}
#if defined(__AVX512F__)
PENSTOCK_INLINE float SumLanes(Floats values) {
  return _mm512_reduce_add_ps(reinterpret_cast<__m512>(values));  // the same tree
}
PENSTOCK_INLINE float MaxLane(Floats values) {
  return _mm512_reduce_max_ps(reinterpret_cast<__m512>(values));
}
#else
PENSTOCK_INLINE float MaxLane(Floats values) {
  float largest = values[0];
  for (int lane = 1; lane < kLanes; ++lane) {
    largest = values[lane] > largest ? values[lane] : largest;
  }
  return largest;
}
#endif

// e^x with a relative error below 2e-7 for x in [-87, 88]; outside, the value at the end of the range; of
// what is not a number, not a number.
// x = n ln 2 + r with |r| <= ln 2 / 2, e^x = 2^n e^r, and e^r by a polynomial of degree 6 (minimax, as
// in Cephes' expf).
PENSTOCK_INLINE Floats Exp(Floats x) {
  x = Min(Broadcast(88.0f), Max(Broadcast(-87.0f), x));
  const Floats shifter = Broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats n = (x * 1.44269504f + shifter) - shifter;
  const Floats r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Floats p = Broadcast(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Ints exponent = __builtin_convertvector(n, Ints) << 23;
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(p) + exponent);
}

// The natural logarithm with an absolute error below 2e-7 or a relative one below 2e-7, for normal positive x.
// x = 2^e m with m in [sqrt(1/2), sqrt(2)), and log m by a polynomial of degree 9 (minimax, as in Cephes' logf).
PENSTOCK_INLINE Floats Log(Floats x) {
  const Words bits = reinterpret_cast<Words>(x);
  // Where the mantissa is above sqrt(2), the exponent is one more.
  const Words above = bits + (0x3F800000u - 0x3F3504F3u);
  const Ints exponent = reinterpret_cast<Ints>(above >> 23) - 127;
  const Floats m = reinterpret_cast<Floats>((above & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
  const Floats e = __builtin_convertvector(exponent, Floats);
  Floats p = Broadcast(7.0376836292e-2f);
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const Floats square = m * m;
  const Floats correction = p * m * square - 2.12194440e-4f * e - 0.5f * square;
  return m + correction + 0.693359375f * e;
}

}  // namespace
}  // namespace penstock
