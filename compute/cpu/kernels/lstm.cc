// One time step of an LSTM and its gradient, apart from the products.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/vector_math.h"

namespace penstock::PENSTOCK_ISA {
namespace {

// Columns of the four gates in a row.
enum Gate : int64_t { kInput, kForget, kCell, kOutput };

// A step after a sample's end. Gates that are shut let no gradient pass, so I needs no lengths.
template <typename Number>
PENSTOCK_INLINE void ShutRow(const LstmForwardRows& a, int64_t row, Number* state, Number* kept) {
  Fill(4 * a.hidden, 0.0f, a.gates.row(row));
  Fill(a.hidden, 0.0f, a.cells.row(row));
  Fill(a.hidden, 0.0f, a.output.row(row));
  ForVectors(a.hidden, [&](int64_t c, auto lanes) {
    Store(Floats{}, state + c, lanes);
    if (kept != nullptr) Store(Floats{}, kept + c, lanes);
  });
}

template <typename Number>
PENSTOCK_INLINE void ForwardRow(const LstmForwardRows& a, int64_t row, Number* state,
                                Number* kept) {
  float* const gates = a.gates.row(row);
  const float* const recurrent = a.recurrent + row * 4 * a.hidden;
  ForVectors(a.hidden, [&](int64_t c, auto lanes) {
    const auto open = [&](Gate gate, auto function) {
      const int64_t at = gate * a.hidden + c;
      const Floats sum =
          Load(gates + at, lanes) + (Load(recurrent + at, lanes) + Load(a.bias + at, lanes));
      const Floats value = decltype(function)::Value(sum);
      Store(value, gates + at, lanes);
      return value;
    };
    const Floats input = open(kInput, Sigmoid());
    const Floats forget = open(kForget, Sigmoid());
    const Floats cell = open(kCell, Tanh());
    const Floats output = open(kOutput, Sigmoid());
    const Floats cells = forget * Load(a.cells_before.row(row) + c, lanes) + input * cell;
    Store(cells, a.cells.row(row) + c, lanes);
    const Floats hidden = output * Tanh::Value(cells);
    Store(hidden, a.output.row(row) + c, lanes);
    Store(hidden, state + c, lanes);
    if (kept != nullptr) Store(hidden, kept + c, lanes);
  });
}

template <typename Number>
PENSTOCK_INLINE void ForwardRows(const LstmForwardRows& a, Number* state, Strided<Number> kept) {
  for (int64_t r = 0; r < a.rows; ++r) {
    Number* const state_row = state + r * a.hidden;
    Number* const kept_row = kept.data == nullptr ? nullptr : kept.row(r);
    if (a.lengths != nullptr && a.lengths[r] <= a.step) {
      ShutRow(a, r, state_row, kept_row);
    } else {
      ForwardRow(a, r, state_row, kept_row);
    }
  }
}

template <typename Number>
PENSTOCK_INLINE void GradientRows(const LstmGradientRows& a, Number* gradients,
                                  Strided<Number> kept) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* const gates = a.gates.row(r);
    float* const cell_gradients = a.cell_gradients + r * a.hidden;
    float* const bias_sums = a.bias_sums + r * 4 * a.hidden;
    ForVectors(a.hidden, [&](int64_t c, auto lanes) {
      const auto gate = [&](Gate which) { return Load(gates + which * a.hidden + c, lanes); };
      const auto put = [&](Gate which, Floats gradient) {
        const int64_t at = which * a.hidden + c;
        Store(gradient, gradients + r * 4 * a.hidden + at, lanes);
        Store(gradient, kept.row(r) + at, lanes);
        Store(Load(bias_sums + at, lanes) + gradient, bias_sums + at, lanes);
      };
      const Floats input = gate(kInput), forget = gate(kForget);
      const Floats cell = gate(kCell), output = gate(kOutput);
      const Floats squashed = Tanh::Value(Load(a.cells.row(r) + c, lanes));
      const Floats of_hidden =
          Load(a.incoming.row(r) + c, lanes) + Load(a.recurrent + r * a.hidden + c, lanes);
      const Floats of_cells =
          Load(cell_gradients + c, lanes) + of_hidden * output * Tanh::Slope(squashed);
      put(kInput, of_cells * cell * Sigmoid::Slope(input));
      put(kForget, of_cells * Load(a.cells_before.row(r) + c, lanes) * Sigmoid::Slope(forget));
      put(kCell, of_cells * input * Tanh::Slope(cell));
      put(kOutput, of_hidden * squashed * Sigmoid::Slope(output));
      Store(of_cells * forget, cell_gradients + c, lanes);
    });
  }
}

}  // namespace

void LstmForward(const LstmForwardRows& a, float* state, Strided<float> kept) {
  ForwardRows(a, state, kept);
}
void LstmForward(const LstmForwardRows& a, Bf16* state, Strided<Bf16> kept) {
  ForwardRows(a, state, kept);
}

void LstmGradient(const LstmGradientRows& a, float* gradients, Strided<float> kept) {
  GradientRows(a, gradients, kept);
}
void LstmGradient(const LstmGradientRows& a, Bf16* gradients, Strided<Bf16> kept) {
  GradientRows(a, gradients, kept);
}

}  // namespace penstock::PENSTOCK_ISA
