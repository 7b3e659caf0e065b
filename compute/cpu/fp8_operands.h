// Fp8Operands: the operands of a bf16 product, rounded to the numbers that fp8 has (compute/fp8.h).
//
// Numbers of fp8 times a power of two are numbers of bf16, so the CPU, which has no products of fp8, multiplies these
// instead: one element at a time is rounded, for a reference to compare with.
//
// Thread safety: none.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "compute/fp8.h"

namespace penstock {

// To nearest even, of magnitudes up to the format's largest after scaling by two to the power of `exponent`.
float RoundToFp8(Fp8 format, int exponent, float value);

// Rounds all `from` to `format` with their own scale; all are NaN if one of them is not finite. Both are bf16.
void RoundOperandToFp8(Fp8 format, absl::Span<const uint16_t> from, uint16_t* to);

}  // namespace penstock
