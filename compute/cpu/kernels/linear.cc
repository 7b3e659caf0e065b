// Kernels around the matrix products of linear maps: biases, residuals, masks and column sums.
#include "compute/cpu/kernels/dropout.h"
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/simd.h"

namespace penstock::PENSTOCK_ISA {
namespace {

template <typename Number>
PENSTOCK_INLINE void MaskAndSum(int64_t rows, int64_t width, const float* values,
                                const DropoutRows* dropout, Number* masked, float* sums) {
  Fill(width, 0.0f, sums);
  for (int64_t r = 0; r < rows; ++r) {
    ForDropout(dropout, r, width, [&](int64_t c, auto lanes, Floats factors) {
      const Floats value = Load(values + r * width + c, lanes) * factors;
      Store(value, masked + r * width + c, lanes);
      Store(Load(sums + c, lanes) + value, sums + c, lanes);
    });
  }
}

}  // namespace

void AddBias(int64_t rows, int64_t width, float* values, const float* bias) {
  for (int64_t r = 0; r < rows; ++r) {
    AddInto(width, bias, values + r * width);
  }
}

void Residual(const ResidualRows& a) {
  for (int64_t r = 0; r < a.rows; ++r) {
    ForDropout(a.dropout, r, a.width, [&](int64_t c, auto lanes, Floats factors) {
      const int64_t at = r * a.width + c;
      const Floats branch = (Load(a.product + at, lanes) + Load(a.bias + c, lanes)) * factors;
      Store(Load(a.residual + at, lanes) + branch, a.output + at, lanes);
    });
  }
}

void ColumnSums(int64_t rows, int64_t width, const float* values, float* sums) {
  Fill(width, 0.0f, sums);
  for (int64_t r = 0; r < rows; ++r) {
    AddInto(width, values + r * width, sums);
  }
}

void MaskColumnSums(int64_t rows, int64_t width, const float* values, const DropoutRows* dropout,
                    float* masked, float* sums) {
  MaskAndSum(rows, width, values, dropout, masked, sums);
}
void MaskColumnSums(int64_t rows, int64_t width, const float* values, const DropoutRows* dropout,
                    Bf16* masked, float* sums) {
  MaskAndSum(rows, width, values, dropout, masked, sums);
}

void MaskRows(int64_t rows, int64_t width, const float* values, const DropoutRows* dropout,
              float* masked) {
  for (int64_t r = 0; r < rows; ++r) {
    ForDropout(dropout, r, width, [&](int64_t c, auto lanes, Floats factors) {
      Store(Load(values + r * width + c, lanes) * factors, masked + r * width + c, lanes);
    });
  }
}

void AddRow(int64_t width, const float* a, const float* b, const DropoutRows* dropout,
            float* output) {
  ForDropout(dropout, 0, width, [&](int64_t c, auto lanes, Floats factors) {
    Store((Load(a + c, lanes) + Load(b + c, lanes)) * factors, output + c, lanes);
  });
}

void AddRowGradient(int64_t width, const float* values, const DropoutRows* dropout, float* a,
                    float* b) {
  ForDropout(dropout, 0, width, [&](int64_t c, auto lanes, Floats factors) {
    const Floats value = Load(values + c, lanes) * factors;
    Store(Load(a + c, lanes) + value, a + c, lanes);
    Store(Load(b + c, lanes) + value, b + c, lanes);
  });
}

}  // namespace penstock::PENSTOCK_ISA
