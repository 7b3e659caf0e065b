// Loops over flat arrays.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/philox.h"
#include "compute/cpu/kernels/vector_math.h"

namespace penstock::PENSTOCK_ISA {
namespace {

// Of at(i, lanes). Four sums at once, because each addition waits for the one before it in its sum.
template <typename At>
PENSTOCK_INLINE double SumOfSquares(int64_t count, At at) {
  constexpr int kSums = 4;
  Doubles sums[kSums] = {};
  const auto add = [&](Doubles& sum, int64_t i, auto lanes) {
    const Doubles value = __builtin_convertvector(at(i, lanes), Doubles);
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

}  // namespace

void Fill(int64_t count, float value, float* values) {
  ForVectors(count, [&](int64_t i, auto lanes) { Store(Broadcast(value), values + i, lanes); });
}

void AddInto(int64_t count, const float* values, float* sums) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    Store(Load(values + i, lanes) + Load(sums + i, lanes), sums + i, lanes);
  });
}

void Product(int64_t count, const float* a, const float* b, float* to) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    Store(Load(a + i, lanes) * Load(b + i, lanes), to + i, lanes);
  });
}

void Difference(int64_t count, float factor, const float* a, const float* b, float* to) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    Store((Load(a + i, lanes) - Load(b + i, lanes)) * factor, to + i, lanes);
  });
}

void LinearCombination(int64_t count, float a, const float* x, float b, const float* y, float* to) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    Store(Load(x + i, lanes) * a + Load(y + i, lanes) * b, to + i, lanes);
  });
}

void CompensateDelay(int64_t count, float strength, const float* now, const float* read,
                     float* gradient) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    const Floats g = Load(gradient + i, lanes);
    const Floats moved = Load(now + i, lanes) - Load(read + i, lanes);
    Store(g + g * g * strength * moved, gradient + i, lanes);
  });
}

void CompensateByMeanSquare(int64_t count, const MeanSquareCompensation& compensation,
                            const float* now, const float* read, float* mean_square,
                            float* gradient) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    const Floats moved = Load(now + i, lanes) - Load(read + i, lanes);
    Floats v = Load(mean_square + i, lanes);
    const Floats g = compensation.Compensated<VectorMath>(Load(gradient + i, lanes), moved, v);
    Store(v, mean_square + i, lanes);
    Store(g, gradient + i, lanes);
  });
}

double SquaredNorm(int64_t count, const float* values) {
  return SumOfSquares(count, [&](int64_t i, auto lanes) { return Load(values + i, lanes); });
}

double SquaredDistance(int64_t count, const float* a, const float* b) {
  return SumOfSquares(
      count, [&](int64_t i, auto lanes) { return Load(a + i, lanes) - Load(b + i, lanes); });
}

void ToBf16(int64_t count, const float* from, Bf16* to) {
  ForVectors(count, [&](int64_t i, auto lanes) { Store(Load(from + i, lanes), to + i, lanes); });
}

void RowsToBf16(int64_t rows, int64_t padded, int64_t width, Strided<const float> from, Bf16* to) {
  // The hardware does not fetch ahead across the stride of a head's rows.
  constexpr int64_t kRowsAhead = 8;
  constexpr int64_t kCacheLineFloats = 16;
  for (int64_t r = 0; r < rows; ++r) {
    const float* const row = from.row(r);
    if (r + kRowsAhead < rows) {
      const float* const later = from.row(r + kRowsAhead);
      for (int64_t c = 0; c < width; c += kCacheLineFloats) __builtin_prefetch(later + c);
    }
    Bf16* const to_row = to + r * width;
    ForVectors(width,
               [&](int64_t c, auto lanes) { Store(Load(row + c, lanes), to_row + c, lanes); });
  }
  __builtin_memset(to + rows * width, 0, (padded - rows) * width * sizeof(Bf16));
}

void WidenBf16(int64_t count, const Bf16* from, float* to) {
  ForVectors(count, [&](int64_t i, auto lanes) { Store(Load(from + i, lanes), to + i, lanes); });
}

void RoundToNearest(int64_t count, float* values) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    Store(Rounded(Load(values + i, lanes)), values + i, lanes);
  });
}

// The numbering of compute/rounding.h.
void RoundToBf16(const StochasticRounding& rounding, int64_t first, int64_t count,
                 const float* from, Bf16* to) {
  constexpr int kGroupLanes = 16;
  constexpr int kGroup = 4 * kGroupLanes;
  Words lane_number;
  for (int lane = 0; lane < kLanes; ++lane) {
    lane_number[lane] = lane;
  }
  const Words parameter = Words{} + static_cast<uint32_t>(rounding.parameter);
  const Words parameter_high = Words{} + static_cast<uint32_t>(rounding.parameter >> 32);
  const auto round = [&](Words random, int64_t i, auto lanes) {
    const Floats values = Load(from + i, lanes);
    const Words bits = reinterpret_cast<Words>(values);
    const Words quiet = (bits >> 16) | 0x40u;  // a NaN stays one
    Store(
        __builtin_convertvector(values == values ? StochasticBf16(bits, random) : quiet, HalfWords),
        to + i, lanes);
  };
  for (int64_t group = 0; group < count; group += kGroup) {
    const auto counter = static_cast<uint32_t>((first + group) / kGroup * kGroupLanes);
    for (int lane = 0; lane < kGroupLanes; lane += kLanes) {
      const PhiloxWords random = PhiloxLanes(rounding.key, lane_number + (counter + lane),
                                             parameter, parameter_high, Words{} + rounding.version);
      for (int word = 0; word < 4; ++word) {
        const int64_t i = group + word * kGroupLanes + lane;
        if (i + kLanes <= count) {
          round(random.word[word], i, All());
        } else if (i < count) {
          round(random.word[word], i, First{count - i});
        }
      }
    }
  }
}

}  // namespace penstock::PENSTOCK_ISA
