// Kernels of ops on sequences: a time step of an LSTM, additive attention. Their matrix products are cuBLASLt's.
//
// As in kernels.h: functions queue and return, sums run in a fixed order, matrices are row-major. C++17, for nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "compute/cuda/kernels/kernels.h"

namespace penstock::cuda {

// One time step of [samples, time, ...]: a row for each sample.
template <typename T>
struct StepRows {
  T* first;
  int64_t stride;  // from sample to sample

  constexpr T* row(int64_t sample) const { return first + sample * stride; }
};

// What one step of an LSTM is made of, apart from the products. Gates are four parts of a row: input, forget, cell, output.
template <typename Number>
struct LstmForwardStep {
  int64_t samples, hidden;
  StepRows<float>
      gates;  // [4 hidden] each: in: the products of the input; out: how open the gates are
  const float* recurrent;   // [samples, 4 hidden]: the products of the state; null: zeros
  const float* input_bias;  // [4 hidden]
  const float* recurrent_bias;
  float forget_bias;                   // added to that of the forget gate
  const int32_t* lengths;              // [samples], or null: a sample that ended before
  int64_t step;                        // this time step gets zeros everywhere
  StepRows<const float> cells_before;  // null: zeros
  StepRows<float> cells;
  StepRows<float> output;
  Number* state;                // [samples, hidden]: the output, for the next step's product
  StepRows<Number> next_state;  // the same, or null: for the gradient of the recurrent matrix
};
template <typename Number>
void LstmForward(cudaStream_t stream, const LstmForwardStep<Number>& step);

// The state before the first step, to `state` and `kept`, which are as `state` and `next_state` of LstmForwardStep:
// carried [samples, hidden], or zeros if that is null.
template <typename Number>
void LstmBegin(cudaStream_t stream, int64_t samples, int64_t hidden, const float* carried,
               Number* state, const StepRows<Number>& kept);

// Shut gates let no gradient pass, so this needs no lengths.
template <typename Number>
struct LstmBackwardStep {
  int64_t samples, hidden;
  StepRows<const float> gates;         // as LstmForward left them
  StepRows<const float> cells_before;  // null: zeros
  StepRows<const float> cells;
  StepRows<const float> grad_output;
  const float* state_gradients;  // [samples, hidden]: from the step after, by the recurrent product
  float* cell_gradients;   // [samples, hidden]: in: from the step after; out: for the step before
  float* bias_sums;        // [samples, 4 hidden]: added to
  Number* step_gradients;  // [samples, 4 hidden]: of the gates' sums, for the recurrent product
  StepRows<Number> gradients;  // the same, for the gradients of input and matrices
};
template <typename Number>
void LstmBackward(cudaStream_t stream, const LstmBackwardStep<Number>& step);

// For each query the mean of the memory, weighted by softmax(direction . tanh(query + key)) over the keys.
struct AdditiveAttention {
  int64_t samples, queries, keys;  // queries and keys of a sample
  int64_t units, width;
  const float* query;      // [samples, queries, units]
  const float* key;        // [samples, keys, units]
  const float* direction;  // [units]
  const float* memory;     // [samples, keys, width]
  const int32_t* lengths;  // [samples]: keys from there on are not seen, and may be all; or null
  float* weights;          // [samples, queries, keys], of the keys that are seen: F writes, I reads
};
// output [samples, queries, width].
void AdditiveAttentionForward(cudaStream_t stream, const AdditiveAttention& attention,
                              float* output);

struct AdditiveAttentionGradients {
  const float* output;
  float* query;
  float* key;
  float* memory;     // or null
  float* direction;  // [samples, queries, units]: shares, whose sum over the queries it is
  float* slopes;     // [samples, queries, keys]: workspace
};
void AdditiveAttentionBackward(cudaStream_t stream, const AdditiveAttention& attention,
                               const AdditiveAttentionGradients& gradients);

// direction [count] = *length v / |v|.
void DirectionForward(cudaStream_t stream, int64_t count, const float* v, const float* length,
                      float* direction);
void DirectionBackward(cudaStream_t stream, int64_t count, const float* v, const float* length,
                       const float* grad_direction, float* grad_v, float* grad_length);

}  // namespace penstock::cuda
