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

template <typename Number>
PENSTOCK_INLINE void Gradient(int64_t rows, int64_t vocabulary, const float* logits,
                              const int32_t* targets, const float* log_sums, float scale,
                              Number* gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = logits + r * vocabulary;
    Number* result = gradient + r * vocabulary;
    const float log_sum = log_sums[r];
    // Computed before the row is overwritten in place, in the precision of the sum below.
    const float at_target = (Exp(Broadcast(row[targets[r]] - log_sum))[0] - 1.0f) * scale;
    ForVectors(vocabulary, [&](int64_t c, auto lanes) {
      Store(Exp(Load(row + c, lanes) - log_sum) * scale, result + c, lanes);
    });
    Store(Broadcast(at_target), result + targets[r], First{1});
  }
}

}  // namespace

double CrossEntropy(int64_t rows, int64_t vocabulary, const float* logits, const int32_t* targets,
                    float* log_sums) {
  double loss = 0.0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = logits + r * vocabulary;
    log_sums[r] = LogSumOfExponentials(row, vocabulary);
    loss += static_cast<double>(log_sums[r]) - static_cast<double>(row[targets[r]]);
  }
  return loss;
}

void CrossEntropyGradient(int64_t rows, int64_t vocabulary, const float* logits,
                          const int32_t* targets, const float* log_sums, float scale,
                          float* gradient) {
  Gradient(rows, vocabulary, logits, targets, log_sums, scale, gradient);
}
void CrossEntropyGradient(int64_t rows, int64_t vocabulary, const float* logits,
                          const int32_t* targets, const float* log_sums, float scale,
                          Bf16* gradient) {
  Gradient(rows, vocabulary, logits, targets, log_sums, scale, gradient);
}

}  // namespace penstock::PENSTOCK_ISA
