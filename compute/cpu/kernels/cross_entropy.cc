// Cross-entropy of logits against target ids, and its gradient, without a matrix of probabilities.
#include <math.h>

#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/simd.h"

namespace penstock::PENSTOCK_ISA {
namespace {

PENSTOCK_INLINE float LogSumOfExponentials(const float* row, int64_t count) {
  Floats largest = Broadcast(row[0]);
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    largest = Max(largest, Load(row + c, All()));
  }
  float maximum = MaxLane(largest);
  for (int64_t tail = c; tail < count; ++tail) {
    maximum = row[tail] > maximum ? row[tail] : maximum;
  }
  Floats sum = {};
  for (c = 0; c + kLanes <= count; c += kLanes) {
    sum += Exp(Load(row + c, All()) - maximum);
  }
  float total = SumLanes(sum);
  if (c < count) {
    const Floats rest = Exp(Load(row + c, First{count - c}) - maximum);
    for (int lane = 0; lane < count - c; ++lane) {
      total += rest[lane];
    }
  }
  return maximum + logf(total);
}

PENSTOCK_INLINE float RowMean(const float* row, int64_t count) {
  Floats sum = {};
  ForVectors(count, [&](int64_t c, auto lanes) { sum += Load(row + c, lanes); });
  return SumLanes(sum) / static_cast<float>(count);
}

template <typename Number>
PENSTOCK_INLINE void Gradient(const CrossEntropyRows& a, float scale, Number* gradient) {
  // The target's distribution.
  const float at_others = a.smoothing / static_cast<float>(a.classes);
  const float at_target = 1.0f - a.smoothing + at_others;
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* row = a.logits + r * a.classes;
    Number* result = gradient + r * a.classes;
    const int32_t target = a.targets[r];
    if (target == a.ignored) {
      ForVectors(a.classes, [&](int64_t c, auto lanes) { Store(Floats{}, result + c, lanes); });
      continue;
    }
    const float log_sum = a.log_sums[r];
    // Computed before the row is overwritten in place, in the precision of the sum below.
    const float of_target = (Exp(Broadcast(row[target] - log_sum))[0] - at_target) * scale;
    ForVectors(a.classes, [&](int64_t c, auto lanes) {
      Store((Exp(Load(row + c, lanes) - log_sum) - at_others) * scale, result + c, lanes);
    });
    Store(Broadcast(of_target), result + target, First{1});
  }
}

}  // namespace

double CrossEntropy(const CrossEntropyRows& a) {
  double loss = 0.0;
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* row = a.logits + r * a.classes;
    const int32_t target = a.targets[r];
    a.log_sums[r] = LogSumOfExponentials(row, a.classes);
    if (target == a.ignored) continue;
    double expected = row[target];
    if (a.smoothing > 0.0f) {
      expected += static_cast<double>(a.smoothing) * (RowMean(row, a.classes) - expected);
    }
    loss += static_cast<double>(a.log_sums[r]) - expected;
  }
  return loss;
}

void TargetRanks(const CrossEntropyRows& a, int32_t* ranks) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* row = a.logits + r * a.classes;
    const int32_t target = a.targets[r];
    if (target == a.ignored) {
      ranks[r] = -1;
      continue;
    }
    const float score = row[target];
    int32_t rank = 0;
    for (int64_t c = 0; c < target; ++c) rank += row[c] >= score ? 1 : 0;
    for (int64_t c = target + 1; c < a.classes; ++c) rank += row[c] > score ? 1 : 0;
    ranks[r] = rank;
  }
}

void CrossEntropyGradient(const CrossEntropyRows& a, float scale, float* gradient) {
  Gradient(a, scale, gradient);
}
void CrossEntropyGradient(const CrossEntropyRows& a, float scale, Bf16* gradient) {
  Gradient(a, scale, gradient);
}

}  // namespace penstock::PENSTOCK_ISA
