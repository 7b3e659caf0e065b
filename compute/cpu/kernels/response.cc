// Local response normalisation and its gradient. Krizhevsky, Sutskever and Hinton, NIPS 2012.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/simd.h"

namespace penstock::PENSTOCK_ISA {
namespace {

// Values of a row with zeros around them, so that windows need no ends. A vector behind the last window may be read.
struct PaddedRow {
  float* values;

  PaddedRow(float* workspace, int64_t width, int64_t before, int64_t after)
      : values(workspace + before) {
    Fill(before, 0.0f, workspace);
    Fill(after + kLanes, 0.0f, values + width);
  }
};

// The sum of `before` values before each lane, itself and `after` values behind.
PENSTOCK_INLINE Floats WindowSum(const float* values, int64_t before, int64_t after) {
  Floats sum = {};
  for (int64_t offset = -before; offset <= after; ++offset) {
    sum += Load(values + offset, All());
  }
  return sum;
}

PENSTOCK_INLINE int64_t PaddedFloats(int64_t width, int64_t window) {
  return width + window + kLanes;
}

// d of each channel of a row, given x^2 with zeros around.
PENSTOCK_INLINE Floats Divisor(const ResponseRows& a, const float* squares) {
  return WindowSum(squares, a.before, a.after) * a.alpha + a.k;
}

PENSTOCK_INLINE void Square(int64_t width, const float* row, float* squares) {
  ForVectors(width, [&](int64_t c, auto lanes) {
    const Floats x = Load(row + c, lanes);
    Store(x * x, squares + c, lanes);
  });
}

}  // namespace

int64_t ResponseWorkspace(int64_t width, int64_t window) { return 3 * PaddedFloats(width, window); }

void ResponseNormal(const ResponseRows& a, float* workspace, float* output) {
  const PaddedRow squares(workspace, a.width, a.before, a.after);
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* row = a.input + r * a.width;
    Square(a.width, row, squares.values);
    ForVectors(a.width, [&](int64_t c, auto lanes) {
      const Floats factor = Exp(Log(Divisor(a, squares.values + c)) * -a.beta);
      Store(Load(row + c, lanes) * factor, output + r * a.width + c, lanes);
    });
  }
}

// With g the gradient of the output and t = g x d^(-beta - 1):
//   grad_input = g d^-beta - 2 alpha beta x (sum of t over the channels in whose windows it is).
void ResponseGradient(const ResponseRows& a, const float* gradient, float* workspace,
                      float* grad_input) {
  const int64_t padded = PaddedFloats(a.width, a.before + a.after + 1);
  const PaddedRow squares(workspace, a.width, a.before, a.after);
  const PaddedRow terms(workspace + padded, a.width, a.after, a.before);
  float* direct = workspace + 2 * padded;
  const float slope = 2.0f * a.alpha * a.beta;
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* row = a.input + r * a.width;
    Square(a.width, row, squares.values);
    ForVectors(a.width, [&](int64_t c, auto lanes) {
      const Floats d = Divisor(a, squares.values + c);
      const Floats scaled = Load(gradient + r * a.width + c, lanes) * Exp(Log(d) * -a.beta);
      Store(scaled, direct + c, lanes);
      Store(scaled * Load(row + c, lanes) / d, terms.values + c, lanes);
    });
    ForVectors(a.width, [&](int64_t c, auto lanes) {
      const Floats sum = WindowSum(terms.values + c, a.after, a.before);
      Store(Load(direct + c, lanes) - Load(row + c, lanes) * sum * slope,
            grad_input + r * a.width + c, lanes);
    });
  }
}

}  // namespace penstock::PENSTOCK_ISA
