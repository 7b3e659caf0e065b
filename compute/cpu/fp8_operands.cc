#include "compute/cpu/fp8_operands.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compute/bf16.h"

namespace penstock {
namespace {

constexpr uint16_t kNaN = 0x7FC0;  // of bf16

float PowerOfTwo(int exponent) { return std::bit_cast<float>(BitsOfPowerOfTwo(exponent)); }

uint32_t MagnitudeBits(uint16_t bf16) { return uint32_t{bf16} << 16 & 0x7FFFFFFF; }

}  // namespace

float RoundToFp8(Fp8 format, int exponent, float value) {
  const float scaled = value * PowerOfTwo(exponent);
  const int binade = static_cast<int>(std::bit_cast<uint32_t>(scaled) >> 23 & 0xFF) - 127;
  const int step = std::max(binade, Fp8ExponentMin(format)) - Fp8MantissaBits(format);
  // Nearest of the default rounding mode is nearest even.
  const float rounded = std::nearbyint(scaled * PowerOfTwo(-step)) * PowerOfTwo(step);
  return rounded * PowerOfTwo(-exponent);
}

void RoundOperandToFp8(Fp8 format, absl::Span<const uint16_t> from, uint16_t* to) {
  uint32_t largest = 0;
  for (const uint16_t number : from) largest = std::max(largest, MagnitudeBits(number));
  if (largest >= kInfiniteBits) {
    std::fill_n(to, from.size(), kNaN);
    return;
  }
  const int exponent = Fp8ScaleExponent(format, largest);
  for (size_t i = 0; i < from.size(); ++i) {
    to[i] = ToBf16(RoundToFp8(format, exponent, FromBf16(from[i])));  // which is exact
  }
}

}  // namespace penstock
