// LayerNorm and its gradient: Ba, Kiros and Hinton, arXiv 1607.06450.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/simd.h"

namespace penstock::PENSTOCK_ISA {
namespace {

PENSTOCK_INLINE float RowMean(const float* row, int64_t width) {
  Floats sum = {};
  ForVectors(width, [&](int64_t c, auto lanes) { sum += Load(row + c, lanes); });
  return SumLanes(sum) / static_cast<float>(width);
}

PENSTOCK_INLINE float RowVariance(const float* row, int64_t width, float mean) {
  Floats sum = {};
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    const Floats centred = Load(row + c, All()) - mean;
    sum += centred * centred;
  }
  float tail = 0.0f;
  for (; c < width; ++c) {
    tail += (row[c] - mean) * (row[c] - mean);
  }
  return (SumLanes(sum) + tail) / static_cast<float>(width);
}

template <typename Output>
PENSTOCK_INLINE void Normalise(const LayerNormRows& a, Output* output) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* row = a.input + r * a.width;
    const float mean = RowMean(row, a.width);
    const float inverse = 1.0f / __builtin_sqrtf(RowVariance(row, a.width, mean) + a.epsilon);
    a.mean[r] = mean;
    a.inverse_deviation[r] = inverse;
    ForVectors(a.width, [&](int64_t c, auto lanes) {
      const Floats normal = (Load(row + c, lanes) - mean) * inverse;
      Store(normal * Load(a.gain + c, lanes) + Load(a.bias + c, lanes), output + r * a.width + c,
            lanes);
    });
  }
}

// With n the normalised input and d = grad_output * gain:
//   grad_input = inverse_deviation * (d - mean(d) - n * mean(d * n)).
PENSTOCK_INLINE void GradientOfRow(const LayerNormGradientRows& a, int64_t r) {
  const float* row = a.input + r * a.width;
  const float* grad = a.grad_output + r * a.width;
  const float mean = a.mean[r];
  const float inverse = a.inverse_deviation[r];
  Floats sum_d = {};
  Floats sum_dn = {};
  ForVectors(a.width, [&](int64_t c, auto lanes) {
    const Floats g = Load(grad + c, lanes);
    const Floats n = (Load(row + c, lanes) - mean) * inverse;
    const Floats d = g * Load(a.gain + c, lanes);
    sum_d += d;
    sum_dn += d * n;
    Store(Load(a.gain_sums + c, lanes) + g * n, a.gain_sums + c, lanes);
    Store(Load(a.bias_sums + c, lanes) + g, a.bias_sums + c, lanes);
  });
  if (a.grad_input == nullptr) return;
  const float mean_d = SumLanes(sum_d) / static_cast<float>(a.width);
  const float mean_dn = SumLanes(sum_dn) / static_cast<float>(a.width);
  ForVectors(a.width, [&](int64_t c, auto lanes) {
    const Floats n = (Load(row + c, lanes) - mean) * inverse;
    const Floats d = Load(grad + c, lanes) * Load(a.gain + c, lanes);
    Floats result = (d - mean_d - n * mean_dn) * inverse;
    if (a.residual != nullptr) {
      result += Load(a.residual + r * a.width + c, lanes);
    }
    Store(result, a.grad_input + r * a.width + c, lanes);
  });
}

}  // namespace

void LayerNorm(const LayerNormRows& a, float* output) { Normalise(a, output); }
void LayerNorm(const LayerNormRows& a, Bf16* output) { Normalise(a, output); }

void LayerNormGradient(const LayerNormGradientRows& a) {
  Fill(a.width, 0.0f, a.gain_sums);
  Fill(a.width, 0.0f, a.bias_sums);
  for (int64_t r = 0; r < a.rows; ++r) {
    GradientOfRow(a, r);
  }
}

}  // namespace penstock::PENSTOCK_ISA
