// A number of bf16 as its bits, for code that takes one number at a time; kernels have vectors of them.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock {

constexpr float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// To nearest, ties to even. Not for NaN.
constexpr uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace penstock
