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

// Four sums at once, because each addition waits for the one before it in its sum.
double SquaredNorm(int64_t count, const float* values) {
  constexpr int kSums = 4;
  Doubles sums[kSums] = {};
  const auto add = [&](Doubles& sum, int64_t i, auto lanes) {
    const Doubles value = __builtin_convertvector(Load(values + i, lanes), Doubles);
    sum += value * value;
  };
  int64_t first = 0;
  for (; first + kSums * kLanes <= count; first += kSums * kLanes) {
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      add(sums[s], first + s * kLanes, All());
    }
  }
  ForVectors(count - first, [&](int64_t i, auto lanes) { add(sums[0], first + i, lanes); });
  return SumLanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

void ToBf16(int64_t count, const float* from, Bf16* to) {
  ForVectors(count, [&](int64_t i, auto lanes) { Store(Load(from + i, lanes), to + i, lanes); });
}

}  // namespace penstock::PENSTOCK_ISA
