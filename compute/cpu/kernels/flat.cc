// Loops over flat arrays.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/simd.h"

namespace penstock::PENSTOCK_ISA {

void Fill(int64_t count, float value, float* values) {
  ForVectors(count, [&](int64_t i, auto lanes) { Store(Broadcast(value), values + i, lanes); });
}

void AddInto(int64_t count, const float* values, float* sums) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    Store(Load(values + i, lanes) + Load(sums + i, lanes), sums + i, lanes);
  });
}

double SquaredNorm(int64_t count, const float* values) {
  Doubles sum = {};
  ForVectors(count, [&](int64_t i, auto lanes) {
    const Doubles value = __builtin_convertvector(Load(values + i, lanes), Doubles);
    sum += value * value;
  });
  return SumLanes(sum);
}

void ToBf16(int64_t count, const float* from, Bf16* to) {
  ForVectors(count, [&](int64_t i, auto lanes) { Store(Load(from + i, lanes), to + i, lanes); });
}

}  // namespace penstock::PENSTOCK_ISA
