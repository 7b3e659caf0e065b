// Rounding of operands to fp8 (compute/fp8.h), with the scale of each found on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "compute/cuda/kernels/kernels.h"
#include "compute/fp8.h"

namespace penstock::cuda {

// Of one operand, on the device.
struct Fp8Scale {
  uint32_t largest;  // the bits of its largest magnitude
  float inverse;  // what products multiply by: one over the scale, or NaN if a number is not finite
};

// `to` [rows, columns], or transposed [columns, rows], = `from` [rows, columns] times the scale, in `format`, where the
// scale is that of all of `from` and is written, too. The largest magnitude is found with atomic maxima, whose order
// does not matter.
// REQUIRES: rows and columns are multiples of kFp8Multiple, and below two million; arrays begin at multiples of 16 bytes. The
// device has products of fp8: there is no code for others.
void RoundToFp8(cudaStream_t stream, Fp8 format, bool transposed, int64_t rows, int64_t columns,
                const Bf16* from, uint8_t* to, Fp8Scale* scale);

}  // namespace penstock::cuda
