// One time step of an LSTM and its gradient, apart from the products: a thread for each unit of each sample.
#include "compute/cuda/kernels/float_math.cuh"
#include "compute/cuda/kernels/for_each.cuh"
#include "compute/cuda/kernels/sequences.h"

namespace penstock::cuda {
namespace {

// Parts of a row of gates.
enum Gate : int64_t { kInput, kForget, kCell, kOutput };

template <typename Number>
struct StepForward {
  LstmForwardStep<Number> a;

  __device__ float Sum(int64_t sample, int64_t unit, Gate gate) const {
    const int64_t at = gate * a.hidden + unit;
    const float recurrent = a.recurrent == nullptr ? 0.0f : a.recurrent[sample * 4 * a.hidden + at];
    const float bias =
        a.input_bias[at] + a.recurrent_bias[at] + (gate == kForget ? a.forget_bias : 0.0f);
    return a.gates.row(sample)[at] + (recurrent + bias);
  }

  __device__ void Put(int64_t sample, int64_t unit, float output) const {
    a.output.row(sample)[unit] = output;
    const Number number = FromFloat<Number>(output);
    a.state[sample * a.hidden + unit] = number;
    if (a.next_state.first != nullptr) a.next_state.row(sample)[unit] = number;
  }

  __device__ void operator()(int64_t at) const {
    const int64_t sample = at / a.hidden;
    const int64_t unit = at % a.hidden;
    float input = 0.0f, forget = 0.0f, cell = 0.0f, output = 0.0f, cells = 0.0f;
    if (a.lengths == nullptr || a.step < a.lengths[sample]) {
      input = Sigmoid::Value(Sum(sample, unit, kInput));
      forget = Sigmoid::Value(Sum(sample, unit, kForget));
      cell = Tanh::Value(Sum(sample, unit, kCell));
      output = Sigmoid::Value(Sum(sample, unit, kOutput));
      const float before =
          a.cells_before.first == nullptr ? 0.0f : a.cells_before.row(sample)[unit];
      cells = forget * before + input * cell;
    }
    float* gates = a.gates.row(sample) + unit;
    gates[kInput * a.hidden] = input;
    gates[kForget * a.hidden] = forget;
    gates[kCell * a.hidden] = cell;
    gates[kOutput * a.hidden] = output;
    a.cells.row(sample)[unit] = cells;
    Put(sample, unit, output * Tanh::Value(cells));
  }
};

template <typename Number>
struct StepBackward {
  LstmBackwardStep<Number> a;

  __device__ void Put(int64_t sample, int64_t unit, Gate gate, float gradient) const {
    const int64_t at = gate * a.hidden + unit;
    const Number number = FromFloat<Number>(gradient);
    a.step_gradients[sample * 4 * a.hidden + at] = number;
    a.gradients.row(sample)[at] = number;
    a.bias_sums[sample * 4 * a.hidden + at] += gradient;
  }

  __device__ void operator()(int64_t at) const {
    const int64_t sample = at / a.hidden;
    const int64_t unit = at % a.hidden;
    const float* gates = a.gates.row(sample) + unit;
    const float input = gates[kInput * a.hidden], forget = gates[kForget * a.hidden];
    const float cell = gates[kCell * a.hidden], output = gates[kOutput * a.hidden];
    const float before = a.cells_before.first == nullptr ? 0.0f : a.cells_before.row(sample)[unit];
    const float squashed = Tanh::Value(a.cells.row(sample)[unit]);
    const float of_hidden = a.grad_output.row(sample)[unit] + a.state_gradients[at];
    const float of_cells = a.cell_gradients[at] + of_hidden * output * Tanh::Slope(squashed);
    Put(sample, unit, kInput, of_cells * cell * Sigmoid::Slope(input));
    Put(sample, unit, kForget, of_cells * before * Sigmoid::Slope(forget));
    Put(sample, unit, kCell, of_cells * input * Tanh::Slope(cell));
    Put(sample, unit, kOutput, of_hidden * squashed * Sigmoid::Slope(output));
    a.cell_gradients[at] = of_cells * forget;
  }
};

}  // namespace

template <typename Number>
void LstmForward(cudaStream_t stream, const LstmForwardStep<Number>& step) {
  ForEach(stream, step.samples * step.hidden, StepForward<Number>{step});
}
template void LstmForward<float>(cudaStream_t, const LstmForwardStep<float>&);
template void LstmForward<Bf16>(cudaStream_t, const LstmForwardStep<Bf16>&);

template <typename Number>
void LstmBegin(cudaStream_t stream, int64_t samples, int64_t hidden, const float* carried,
               Number* state, const StepRows<Number>& kept) {
  const StepRows<Number> rows = kept;
  ForEach(stream, samples * hidden, [=] __device__(int64_t at) {
    const Number number = FromFloat<Number>(carried == nullptr ? 0.0f : carried[at]);
    state[at] = number;
    rows.row(at / hidden)[at % hidden] = number;
  });
}
template void LstmBegin<float>(cudaStream_t, int64_t, int64_t, const float*, float*,
                               const StepRows<float>&);
template void LstmBegin<Bf16>(cudaStream_t, int64_t, int64_t, const float*, Bf16*,
                              const StepRows<Bf16>&);

template <typename Number>
void LstmBackward(cudaStream_t stream, const LstmBackwardStep<Number>& step) {
  ForEach(stream, step.samples * step.hidden, StepBackward<Number>{step});
}
template void LstmBackward<float>(cudaStream_t, const LstmBackwardStep<float>&);
template void LstmBackward<Bf16>(cudaStream_t, const LstmBackwardStep<Bf16>&);

}  // namespace penstock::cuda
