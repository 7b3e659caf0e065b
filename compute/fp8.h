// Fp8: numbers of eight bits, to which the operands of products are rounded with training.precision: fp8.
//
// Weights and activations become kE4M3, with three bits of mantissa and numbers up to 448, gradients kE5M2, with two bits and
// numbers up to 57344 (Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433). Every operand of every
// product is first multiplied by a power of two, the largest with which none of its numbers is too large. The scale rounds
// nothing, and depends on that operand alone: not on steps before, on the schedule or on the stages, so the reference needs
// no history to compute the same (docs/adr/0054-fp8.md).
//
// Plain values in C++17, so that kernels for any device can include them.
#pragma once

#include <cstdint>

namespace penstock {

enum class Fp8 : uint8_t { kNone, kE4M3, kE5M2 };

// The largest number of a format is 1.75 * 2^Fp8ExponentMax, the smallest that has all bits of mantissa is 2^Fp8ExponentMin. From a
// power of two to the next there are 2^Fp8MantissaBits numbers.
constexpr int Fp8ExponentMax(Fp8 format) { return format == Fp8::kE4M3 ? 8 : 15; }
constexpr int Fp8ExponentMin(Fp8 format) { return format == Fp8::kE4M3 ? -6 : -14; }
constexpr int Fp8MantissaBits(Fp8 format) { return format == Fp8::kE4M3 ? 3 : 2; }

// The bits of a float that is infinite; those of finite magnitudes are less, those of NaN more.
constexpr uint32_t kInfiniteBits = 0x7F800000;

// The exponent of an operand's scale, from the bits of its largest magnitude as a float. Scales end where they, and one over
// them, are floats with all bits. REQUIRES: largest < kInfiniteBits.
constexpr int Fp8ScaleExponent(Fp8 format, uint32_t largest) {
  constexpr int kExponentMax = 100;
  constexpr uint32_t kMantissaOfMost = 0x600000;  // of 1.75
  if (largest == 0) return 0;
  const int exponent = Fp8ExponentMax(format) - (static_cast<int>(largest >> 23) - 127) -
                       ((largest & 0x7FFFFF) > kMantissaOfMost ? 1 : 0);
  return exponent < kExponentMax ? exponent : kExponentMax;
}

// The bits of two to the power of `exponent`. REQUIRES: -126 to 127.
constexpr uint32_t BitsOfPowerOfTwo(int exponent) {
  return static_cast<uint32_t>(exponent + 127) << 23;
}

// Tensor cores take sides in multiples of this, and each side of a linear map is the inner side of one of its products.
constexpr int64_t kFp8Multiple = 16;

// The three products of a linear map read its inputs and its weight as `values`, and the gradients of its outputs as
// `gradients`.
struct Fp8Formats {
  Fp8 values = Fp8::kNone, gradients = Fp8::kNone;
};
// `wanted`: the node is in fp8. A map with another side than those above does not read fp8.
constexpr Fp8Formats Fp8FormatsOf(bool wanted, int64_t rows, int64_t inputs, int64_t outputs) {
  const bool fits =
      rows % kFp8Multiple == 0 && inputs % kFp8Multiple == 0 && outputs % kFp8Multiple == 0;
  return wanted && fits ? Fp8Formats{Fp8::kE4M3, Fp8::kE5M2} : Fp8Formats{};
}

}  // namespace penstock
