// Additive attention of one sample and its gradient, a query after the other. The hyperbolic tangents, one for each query,
// key and unit, are computed again in the gradient.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/softmax.h"
#include "compute/cpu/kernels/vector_math.h"

namespace penstock::PENSTOCK_ISA {
namespace {

PENSTOCK_INLINE float Dot(int64_t count, const float* a, const float* b) {
  Floats sum = {};
  ForVectors(count, [&](int64_t c, auto lanes) { sum += Load(a + c, lanes) * Load(b + c, lanes); });
  return SumLanes(sum);
}

// to += factor * from
PENSTOCK_INLINE void AddScaled(int64_t count, float factor, const float* from, float* to) {
  ForVectors(count, [&](int64_t c, auto lanes) {
    Store(Load(to + c, lanes) + factor * Load(from + c, lanes), to + c, lanes);
  });
}

PENSTOCK_INLINE float Score(int64_t units, const float* query, const float* key,
                            const float* direction) {
  Floats sum = {};
  ForVectors(units, [&](int64_t u, auto lanes) {
    sum += Load(direction + u, lanes) * Tanh::Value(Load(query + u, lanes) + Load(key + u, lanes));
  });
  return SumLanes(sum);
}

}  // namespace

void AdditiveAttentionForward(const AdditiveAttention& a, float* output) {
  Fill(a.queries * a.width, 0.0f, output);
  if (a.keys == 0) return;
  for (int64_t q = 0; q < a.queries; ++q) {
    float* const weights = a.weights.row(q);
    for (int64_t k = 0; k < a.keys; ++k) {
      weights[k] = Score(a.units, a.query + q * a.units, a.key + k * a.units, a.direction);
    }
    const float inverse = 1.0f / ExpRow(weights, a.keys, RowMax(weights, a.keys));
    for (int64_t k = 0; k < a.keys; ++k) {
      weights[k] *= inverse;
      AddScaled(a.width, weights[k], a.memory + k * a.width, output + q * a.width);
    }
  }
}

void AdditiveAttentionBackward(const AdditiveAttention& a, const float* incoming,
                               const AdditiveAttentionGradient& gradient, float* workspace) {
  Fill(a.queries * a.units, 0.0f, gradient.query);
  Fill(a.keys * a.units, 0.0f, gradient.key);
  Fill(a.units, 0.0f, gradient.direction_sums);
  if (gradient.memory != nullptr) Fill(a.keys * a.width, 0.0f, gradient.memory);
  for (int64_t q = 0; q < a.queries; ++q) {
    const float* const weights = a.weights.row(q);
    const float* const incoming_row = incoming + q * a.width;
    float mean = 0.0f;  // of the weights' slopes
    for (int64_t k = 0; k < a.keys; ++k) {
      workspace[k] = Dot(a.width, incoming_row, a.memory + k * a.width);
      mean += weights[k] * workspace[k];
      if (gradient.memory != nullptr) {
        AddScaled(a.width, weights[k], incoming_row, gradient.memory + k * a.width);
      }
    }
    for (int64_t k = 0; k < a.keys; ++k) {
      const float slope = weights[k] * (workspace[k] - mean);  // of the score
      float* const query = gradient.query + q * a.units;
      float* const key = gradient.key + k * a.units;
      ForVectors(a.units, [&](int64_t u, auto lanes) {
        const Floats squashed = Tanh::Value(Load(a.query + q * a.units + u, lanes) +
                                            Load(a.key + k * a.units + u, lanes));
        const Floats of_sum = slope * Load(a.direction + u, lanes) * Tanh::Slope(squashed);
        Store(Load(query + u, lanes) + of_sum, query + u, lanes);
        Store(Load(key + u, lanes) + of_sum, key + u, lanes);
        float* const sums = gradient.direction_sums + u;
        Store(Load(sums, lanes) + slope * squashed, sums, lanes);
      });
    }
  }
}

}  // namespace penstock::PENSTOCK_ISA
