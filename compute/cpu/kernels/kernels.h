// Kernels: the CPU back-end's loops apart from matrix products, one table for each instruction set. Those that a single op
// needs may be in the op's own file (loops.h).
//
// The files of this folder are compiled once for every instruction set (CMakeLists.txt), each time
// into a namespace of its own; best.h picks the table this machine can run. So one binary runs everywhere
// and uses wide registers where they exist.
//
// Matrices are row-major. A kernel works on a block of rows on one thread, and its sums run in a fixed
// order, so results do not depend on how blocks are spread over threads. Column sums are written, not
// added: the caller adds the blocks' sums in order.
#pragma once

#include <cstdint>

#include "compute/dropout_mask.h"
#include "compute/elementwise/activation.h"
#include "compute/elementwise/all.h"
#include "compute/elementwise/mean_square_compensation.h"
#include "compute/rounding.h"

namespace penstock {

// Bits of a bfloat16 number: the upper half of a float.
using Bf16 = uint16_t;

// Rows that begin `stride` elements after one another.
template <typename T>
struct Strided {
  T* data = nullptr;
  int64_t stride = 0;

  // Always inline, because the linker might keep the copy of another instruction set.
  __attribute__((always_inline)) T* row(int64_t r) const { return data + r * stride; }
};

// Dropout of a block of rows of [batch, time, width].
struct DropoutRows : DropoutMask {
  int64_t first_row = 0;  // of the microbatch
};

struct LayerNormRows {
  int64_t rows, width;
  float epsilon;  // added to the variance
  const float* input;
  const float* gain;
  const float* bias;
  float* mean;               // by row
  float* inverse_deviation;  // by row
};

struct LayerNormGradientRows {
  int64_t rows, width;
  const float* input;
  const float* gain;
  const float* mean;
  const float* inverse_deviation;
  const float* grad_output;
  const float* residual;  // added to grad_input, or null
  float* grad_input;      // null: not wanted
  float* gain_sums;       // [width]
  float* bias_sums;       // [width]
};

// The target id that stands for none: no class has it.
inline constexpr int32_t kNoTarget = -1;

// The mean cross-entropy of logits against ids, where `smoothing` of a target is spread over all classes.
struct CrossEntropyRows {
  int64_t rows, classes;
  const float* logits;
  const int32_t* targets;
  float* log_sums;              // by row: the logarithm of the sum of exponentials
  int32_t ignored = kNoTarget;  // the id of targets that do not count
  float smoothing = 0.0f;
};

// A block of rows in a normalisation of channels, with n = (input - mean) * inverse_deviation.
struct ChannelRows {
  int64_t rows, width;
  const float* input;
  const float* mean;               // by channel
  const float* inverse_deviation;  // by channel
};

// By channel, what makes an input's gradient from the output's.
struct ChannelGradientFactors {
  const float* of_gradient;
  const float* of_normal;
  const float* offset;
};

// Local response normalisation over the channels of a row: with d = k + alpha * sum of x^2 over the window,
// y = x * d^-beta. The window of channel c: `before` channels before it and `after` behind it.
struct ResponseRows {
  int64_t rows, width;
  int64_t before, after;
  float alpha, beta, k;
  const float* input;
};

// y = residual + dropout(product + bias).
struct ResidualRows {
  int64_t rows, width;
  const float* residual;
  const float* product;
  const float* bias;
  const DropoutRows* dropout;  // or null
  float* output;
};

// One head of softmax attention over one sample: queries [queries, size], keys and values [keys, size]. Where it is
// causal, a query sees the keys of its own and earlier time steps, of which the window may leave the last few, else all.
// REQUIRES: keys >= 1; there is no window unless it is causal.
struct AttentionHead {
  int64_t queries, keys, size;
  bool causal;
  float scale;         // of the scores
  int64_t window = 0;  // time steps, a query's own the last, whose keys it may see; 0: no bound
  // With causal: by query, the first key of its document, before which it sees none; ascending. Null: there is one document.
  const int32_t* starts = nullptr;
  Strided<const float> query, key, value;

  // The keys that a query sees, seen_begin .. seen_end; maybe none, if there is a window. Neither is less than that of an
  // earlier query.
  __attribute__((always_inline)) int64_t seen_begin(int64_t number) const {
    const int64_t start = starts == nullptr ? 0 : starts[number];
    const int64_t outside = window == 0 ? 0 : number + 1 - window;
    return outside <= start ? start : outside < keys ? outside : keys;
  }
  __attribute__((always_inline)) int64_t seen_end(int64_t number) const {
    return causal && number + 1 < keys ? number + 1 : keys;
  }
};

// The scores of a block of queries of a head, in squares of `block` queries by `block` keys, one after another and dense, as
// the fastest products want them.
struct AttentionScores {
  int64_t first, rows;  // queries; rows <= block
  int64_t begin, end;   // keys that are there; multiples of block
  int64_t block;

  // Where a row's score with a key is.
  __attribute__((always_inline)) int64_t At(int64_t row, int64_t key) const {
    return ((key - begin) / block * block + row) * block + key % block;
  }
};

// Null data: not wanted.
struct AttentionHeadGradient {
  Strided<float> query, key, value;
  bool adds_to_keys = false;  // key and value are added to: other heads have the same ones
};

// The attention of one sample whose scores are a sum over units of direction * tanh(query + key) (Bahdanau et al., arXiv
// 1409.0473). `keys`: those of the memory that are seen; may be 0.
struct AdditiveAttention {
  int64_t queries, keys, units, width;
  const float* query;      // [queries, units]
  const float* key;        // [keys, units]
  const float* direction;  // [units]
  const float* memory;     // [keys, width], which is mixed
  Strided<float> weights;  // [queries, keys]: the softmax of the scores
};

struct AdditiveAttentionGradient {
  float* query;           // [queries, units]
  float* key;             // [keys, units]
  float* direction_sums;  // [units]
  float* memory;          // [keys, width]; null: not wanted
};

// One time step of an LSTM for a block of samples, with gates in PyTorch's order: input, forget, cell, output. Hochreiter
// and Schmidhuber, Neural Computation 9 (1997), with the forget gate of Gers et al.
struct LstmStepRows {
  int64_t rows, hidden;
  Strided<float> gates;               // [rows, 4 hidden]
  Strided<const float> cells_before;  // [rows, hidden]: of the step before
  Strided<float> cells;               // [rows, hidden]
};

struct LstmForwardRows : LstmStepRows {
  const float* bias;       // [4 hidden]
  const float* recurrent;  // [rows, 4 hidden]: the step before times the recurrent matrix
  // Samples that are no longer than `step` have a state and output of zeros; null: all are long enough.
  const int32_t* lengths;
  int64_t step;
  Strided<float> output;  // [rows, hidden]
};

struct LstmGradientRows : LstmStepRows {
  Strided<const float> incoming;  // [rows, hidden]: the gradient of the output
  const float* recurrent;         // [rows, hidden]: what the step after adds to it
  float* cell_gradients;  // [rows, hidden]: of this step's cells without that, then of those before
  float* bias_sums;       // [rows, 4 hidden], added to
};

// Function types, so that each kernel's parameters are written once. Number is float or Bf16: what the
// matrix products read.
namespace kernel {

// out = (x - mean) / deviation * gain + bias, of each row.
template <typename Number>
using LayerNorm = void(const LayerNormRows&, Number* output);
using LayerNormGradient = void(const LayerNormGradientRows&);

// means [width] of the columns, squares [width]: sums of (value - mean)^2.
using ChannelMoments = void(int64_t rows, int64_t width, const float* values, float* means,
                            float* squares);
// output = n * gain + bias.
using ChannelNormal = void(const ChannelRows&, const float* gain, const float* bias, float* output);
// sums = column sums of the gradient g, normal_sums = those of g * n.
using ChannelGradientSums = void(const ChannelRows&, const float* gradient, float* sums,
                                 float* normal_sums);
// grad_input = g * of_gradient - n * of_normal - offset.
using ChannelGradient = void(const ChannelRows&, const ChannelGradientFactors&,
                             const float* gradient, float* grad_input);

// Floats of workspace for a row of both passes of a response normalisation.
using ResponseWorkspace = int64_t(int64_t width, int64_t window);
using ResponseNormal = void(const ResponseRows&, float* workspace, float* output);
using ResponseGradient = void(const ResponseRows&, const float* gradient, float* workspace,
                              float* grad_input);

// z = product + bias; output = gelu(z), derivative = gelu'(z). `derivative` may be `product`.
template <typename Number>
using BiasGelu = void(int64_t rows, int64_t width, const float* product, const float* bias,
                      Number* derivative, Number* output);
// gradient = incoming * derivative, sums = its column sums. `gradient` may be `incoming`.
template <typename Number>
using GeluGradient = void(int64_t rows, int64_t width, const float* incoming,
                          const Number* derivative, Number* gradient, float* sums);

using Activate = void(Activation activation, int64_t count, const float* input, float* output);
// gradient = incoming * slope. `seen`: the output or the input, by HasSlopeOfOutput.
using ActivateGradient = void(Activation activation, int64_t count, const float* seen,
                              const float* incoming, float* gradient);

using AddBias = void(int64_t rows, int64_t width, float* values, const float* bias);
using Residual = void(const ResidualRows&);
using ColumnSums = void(int64_t rows, int64_t width, const float* values, float* sums);
// masked = dropout(values) (a plain copy when `dropout` is null), sums = its column sums.
template <typename Number>
using MaskColumnSums = void(int64_t rows, int64_t width, const float* values,
                            const DropoutRows* dropout, Number* masked, float* sums);

// masked = dropout(values), of each row.
using MaskRows = void(int64_t rows, int64_t width, const float* values, const DropoutRows* dropout,
                      float* masked);

// output[row] = dropout(a[row] + b[row]), row by row.
using AddRow = void(int64_t width, const float* a, const float* b, const DropoutRows* dropout,
                    float* output);
// a[row] += dropout(values[row]), b[row] += the same.
using AddRowGradient = void(int64_t width, const float* values, const DropoutRows* dropout,
                            float* a, float* b);

// Floats of workspace that both passes over such a head need; fewer keys need no more.
using AttentionWorkspace = int64_t(int64_t queries, int64_t keys, int64_t size);
// output [queries, size] = softmax(scale * query key^T) value, zeros where a query sees no key; log_sums [queries] =
// logarithm of each row's sum of exponentials, for the gradient.
using Attention = void(const AttentionHead&, float* output, int64_t output_stride, float* log_sums,
                       float* workspace);
// Takes the gradient `incoming` [queries, size] of the output.
using AttentionGradient = void(const AttentionHead&, const float* incoming, int64_t incoming_stride,
                               const float* log_sums, const AttentionHeadGradient&,
                               float* workspace);

// The same passes in parts, for products in bf16 between them. `scores` are query key^T, not yet scaled; all arrays are laid out as
// AttentionScores says. Weights of keys that a query does not see are zeros.
// weights = exp(scale * (scores - the row's largest)); log_sums as of Attention, inverse_sums [rows] of the weights.
using AttentionWeights = void(const AttentionHead&, const AttentionScores&, const float* scores,
                              Bf16* weights, float* log_sums, float* inverse_sums);
// weights p = exp(scale * scores - log_sums), score_gradients = scale * p * (g - the row's sum of p g), where g are
// `gradients` of the weights. Overwrites the scores.
using AttentionWeightGradients = void(const AttentionHead&, const AttentionScores&, float* scores,
                                      const float* gradients, const float* log_sums, Bf16* weights,
                                      Bf16* score_gradients);

// Writes the weights and output [queries, width], which is their mix of the memory: zeros where nothing is seen.
using AdditiveAttentionForward = void(const AdditiveAttention&, float* output);
// Reads the weights, takes the gradient `incoming` [queries, width] of the output. `workspace`: [keys].
using AdditiveAttentionBackward = void(const AdditiveAttention&, const float* incoming,
                                       const AdditiveAttentionGradient&, float* workspace);

// Takes the gates as products of the input, leaves them as they open. The output goes to `state` and `kept`, too, which
// products read; kept.data may be null.
template <typename Number>
using LstmForward = void(const LstmForwardRows&, Number* state, Strided<Number> kept);
// gradients [rows, 4 hidden] of what the gates are functions of, twice: products read both.
template <typename Number>
using LstmGradient = void(const LstmGradientRows&, Number* gradients, Strided<Number> kept);

// Writes log_sums. Returns the sum over the rows that count of log_sums[row] - logits[row][targets[row]].
using CrossEntropy = double(const CrossEntropyRows&);
// gradient = scale * (softmax(logits) - the target's distribution), zero in rows that do not count. Reads log_sums.
// `gradient` may be `logits`.
template <typename Number>
using CrossEntropyGradient = void(const CrossEntropyRows&, float scale, Number* gradient);
// By row, the rank of its target (Tape::ranks).
using TargetRanks = void(const CrossEntropyRows&, int32_t* ranks);

// velocity = momentum velocity + g, direction = g + momentum velocity, where g is the scaled gradient.
using NesterovDirection = void(float momentum, float gradient_scale, int64_t count,
                               const float* gradients, float* velocity, float* direction);

using Fill = void(int64_t count, float value, float* values);
using AddInto = void(int64_t count, const float* values, float* sums);           // sums += values
using Product = void(int64_t count, const float* a, const float* b, float* to);  // to = a * b
// to = factor * (a - b)
using Difference = void(int64_t count, float factor, const float* a, const float* b, float* to);
using SquaredDistance = double(int64_t count, const float* a, const float* b);
// to = a x + b y; `to` may be either.
using LinearCombination = void(int64_t count, float a, const float* x, float b, const float* y,
                               float* to);
// gradient += strength * gradient^2 * (now - read).
using CompensateDelay = void(int64_t count, float strength, const float* now, const float* read,
                             float* gradient);
using CompensateByMeanSquare = void(int64_t count, const MeanSquareCompensation& compensation,
                                    const float* now, const float* read, float* mean_square,
                                    float* gradient);
using SquaredNorm = double(int64_t count, const float* values);
using ToBf16 = void(int64_t count, const float* from, Bf16* to);  // rounds to nearest even
// The same, of rows, to [padded, width] with zeros in rows from `rows` on.
using RowsToBf16 = void(int64_t rows, int64_t padded, int64_t width, Strided<const float> from,
                        Bf16* to);
using WidenBf16 = void(int64_t count, const Bf16* from, float* to);
// What ToBf16 and WidenBf16 after one another would make of the numbers.
using RoundToNearest = void(int64_t count, float* values);
// Rounds at random. `first`: number of from[0] in its parameter, a multiple of 64.
using RoundToBf16 = void(const StochasticRounding& rounding, int64_t first, int64_t count,
                         const float* from, Bf16* to);

}  // namespace kernel

// All of them: the name of a kernel's type, which its function has too (isa.h), and that of its place in a table. The
// first are there for both Numbers.
#define PENSTOCK_NUMBER_KERNELS(ROW)                \
  ROW(LayerNorm, layer_norm)                        \
  ROW(BiasGelu, bias_gelu)                          \
  ROW(GeluGradient, gelu_gradient)                  \
  ROW(MaskColumnSums, mask_column_sums)             \
  ROW(CrossEntropyGradient, cross_entropy_gradient) \
  ROW(LstmForward, lstm_forward)                    \
  ROW(LstmGradient, lstm_gradient)
#define PENSTOCK_KERNELS(ROW)                                 \
  ROW(LayerNormGradient, layer_norm_gradient)                 \
  ROW(Activate, activate)                                     \
  ROW(ActivateGradient, activate_gradient)                    \
  ROW(ChannelMoments, channel_moments)                        \
  ROW(ChannelNormal, channel_normal)                          \
  ROW(ChannelGradientSums, channel_gradient_sums)             \
  ROW(ChannelGradient, channel_gradient)                      \
  ROW(ResponseWorkspace, response_workspace)                  \
  ROW(ResponseNormal, response_normal)                        \
  ROW(ResponseGradient, response_gradient)                    \
  ROW(AddBias, add_bias)                                      \
  ROW(Residual, residual)                                     \
  ROW(ColumnSums, column_sums)                                \
  ROW(MaskRows, mask_rows)                                    \
  ROW(AddRow, add_row)                                        \
  ROW(AddRowGradient, add_row_gradient)                       \
  ROW(AttentionWorkspace, attention_workspace)                \
  ROW(Attention, attention)                                   \
  ROW(AttentionGradient, attention_gradient)                  \
  ROW(AttentionWeights, attention_weights)                    \
  ROW(AttentionWeightGradients, attention_weight_gradients)   \
  ROW(AdditiveAttentionForward, additive_attention_forward)   \
  ROW(AdditiveAttentionBackward, additive_attention_backward) \
  ROW(CrossEntropy, cross_entropy)                            \
  ROW(TargetRanks, target_ranks)                              \
  ROW(NesterovDirection, nesterov_direction)                  \
  ROW(Fill, fill)                                             \
  ROW(AddInto, add_into)                                      \
  ROW(Product, product)                                       \
  ROW(Difference, difference)                                 \
  ROW(SquaredDistance, squared_distance)                      \
  ROW(LinearCombination, linear_combination)                  \
  ROW(CompensateDelay, compensate_delay)                      \
  ROW(CompensateByMeanSquare, compensate_by_mean_square)      \
  ROW(SquaredNorm, squared_norm)                              \
  ROW(ToBf16, to_bf16)                                        \
  ROW(RowsToBf16, rows_to_bf16)                               \
  ROW(WidenBf16, widen_bf16)                                  \
  ROW(RoundToNearest, round_to_nearest)                       \
  ROW(RoundToBf16, round_to_bf16)

#define PENSTOCK_KERNEL_POINTER(Type, name) kernel::Type* name;
#define PENSTOCK_NUMBER_KERNEL_POINTER(Type, name) kernel::Type<Number>* name;

template <typename Number>
struct NumberKernels {
  PENSTOCK_NUMBER_KERNELS(PENSTOCK_NUMBER_KERNEL_POINTER)
};

// One pass over a parameter. `state`: by array of the step; null where it may be lacking. `next` may be `weights`;
// `mirror` may be null.
template <typename Step>
struct ElementwiseKernel {
  void (*run)(const Step& step, float gradient_scale, int64_t count, const float* weights,
              const float* gradients, float* const* state, float* next, Bf16* mirror);
};
template <typename... Configs>
struct ElementwiseKernels : ElementwiseKernel<typename Configs::Step>... {};

struct Kernels {
  const char* instruction_set;

  NumberKernels<float> f32;
  NumberKernels<Bf16> bf16;

  const OfElementwise<ElementwiseKernels>* elementwise;
  PENSTOCK_KERNELS(PENSTOCK_KERNEL_POINTER)

  template <typename Number>
  const NumberKernels<Number>& of() const;
  template <typename Step>
  auto Elementwise() const {
    return static_cast<const ElementwiseKernel<Step>&>(*elementwise).run;
  }
};
#undef PENSTOCK_KERNEL_POINTER
#undef PENSTOCK_NUMBER_KERNEL_POINTER

template <>
inline const NumberKernels<float>& Kernels::of() const {
  return f32;
}
template <>
inline const NumberKernels<Bf16>& Kernels::of() const {
  return bf16;
}

}  // namespace penstock
