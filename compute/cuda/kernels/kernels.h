// Kernels: what the CUDA back-end computes with kernels of its own, because no library does it well.
//
// Host functions that queue kernels on a stream and return at once. Matrices are row-major. Sums run in a
// fixed order and nothing is added atomically, so results repeat bit for bit. `Number` is float or Bf16:
// what the matrix products read; everything between them is computed in float.
//
// All sizes may be odd; rows and widths above zero. C++17, for nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "compute/dropout_mask.h"
#include "compute/elementwise/all.h"
#include "compute/elementwise/mean_square_compensation.h"
#include "compute/rounding.h"

namespace penstock::cuda {

// Bits of a bfloat16 number, as in the interfaces of compute/.
using Bf16 = uint16_t;

// A mask whose first sample a CUDA graph, which repeats its other arguments, reads from memory.
struct DeviceMask : DropoutMask {
  const int64_t* first_sample_at = nullptr;  // null: first_sample
};

// output [rows, width] = dropout(tokens[ids[row]] + positions[row % time]).
void EmbeddingForward(cudaStream_t stream, int64_t rows, int64_t time, int64_t width,
                      const int32_t* ids, const float* tokens, const float* positions,
                      const DeviceMask& dropout, float* output);
// The order in which EmbeddingBackward adds rows: by id, rows of one id ascending. `order` has 2 * rows
// numbers: the sorted ids, then their rows.
int64_t SortRowsWorkspaceBytes(int64_t rows);
// Errors: those of cub, which does not report them otherwise.
cudaError_t SortRows(cudaStream_t stream, int64_t rows, int64_t vocabulary, const int32_t* ids,
                     int32_t* order, void* workspace, int64_t workspace_bytes);
// tokens[ids[row]] += dropout(gradient[row]), positions[row % time] += the same. sums: IdWindowSums of id_windows.h.
void EmbeddingBackward(cudaStream_t stream, int64_t rows, int64_t time, int64_t width,
                       const int32_t* order, const float* gradient, const DeviceMask& dropout,
                       float* tokens, float* positions, float* sums);

// output = (x - mean) / deviation * gain + bias, of each row; epsilon is added to the variance. mean,
// inverse_deviation: [rows].
template <typename Number>
void LayerNormForward(cudaStream_t stream, int64_t rows, int64_t width, float epsilon,
                      const float* input, const float* gain, const float* bias, float* mean,
                      float* inverse_deviation, Number* output);

struct LayerNormBackwardArguments {
  const float* input;  // [rows, width]
  const float* gain;   // [width]
  const float* mean;   // [rows]
  const float* inverse_deviation;
  const float* grad_output;  // [rows, width]
  const float* residual;     // added to grad_input, or null
  float* grad_input;         // or null
  float* gain_sums;          // [width], written
  float* bias_sums;          // [width], written
  float* workspace;          // ColumnSumsWorkspaceFloats(rows, 2 * width)
};
void LayerNormBackward(cudaStream_t stream, int64_t rows, int64_t width,
                       const LayerNormBackwardArguments& arguments);

// Column sums are made in two steps, the partial sums in `workspace`.
int64_t ColumnSumsWorkspaceFloats(int64_t rows, int64_t width);
template <typename Number>
void ColumnSums(cudaStream_t stream, int64_t rows, int64_t width, const Number* values, float* sums,
                float* workspace);

// output = residual + dropout(product + bias).
void ResidualForward(cudaStream_t stream, int64_t rows, int64_t width, const float* residual,
                     const float* product, const float* bias, const DeviceMask& dropout,
                     float* output);
// masked = dropout(values), as Number, which may be in place. first_row: of the mask, for the first row of `values`.
template <typename Number>
void Mask(cudaStream_t stream, int64_t rows, int64_t width, const float* values,
          const DeviceMask& dropout, int64_t first_row, Number* masked);

// z = product + bias, in place; output = gelu(z) in its tanh form. For sizes cuBLASLt's epilogue refuses.
template <typename Number>
void BiasGeluForward(cudaStream_t stream, int64_t rows, int64_t width, float* z, const float* bias,
                     Number* output);
// output = gelu(z).
void GeluForward(cudaStream_t stream, int64_t count, const Bf16* z, Bf16* output);
// gradient = incoming * gelu'(z). `From`: float, or as Number; then in place, too.
template <typename From, typename Number>
void GeluBackward(cudaStream_t stream, int64_t count, const From* incoming, const From* z,
                  Number* gradient);
// to = values + bias, as Number.
template <typename Number>
void AddBias(cudaStream_t stream, int64_t rows, int64_t width, const float* values,
             const float* bias, Number* to);

// to = values + bias, which may be null.
void ConvertToFloat(cudaStream_t stream, int64_t rows, int64_t width, const Bf16* values,
                    const float* bias, float* to);

// Scaled dot-product attention with several heads. Scores are scaled by 1 / sqrt(size).
struct AttentionShape {
  int64_t batch, queries, keys;  // queries and keys of a sample
  int64_t heads, size;           // size: of a head
  int64_t
      key_value_heads;  // each of keys and values is read by as many heads, that follow one another
  int64_t query_stride, key_stride;  // numbers from row to row of queries, and of keys and values
  bool causal;     // a query sees only the keys of its own and earlier time steps,
  int64_t window;  // a query sees at most this number of them, its own the last; 0: no bound

  constexpr int64_t width() const { return heads * size; }
  constexpr int64_t key_width() const { return key_value_heads * size; }
  constexpr int64_t group() const { return heads / key_value_heads; }
};
inline constexpr int64_t kAttentionSizeMax = 256;  // of a head

// [batch * queries, heads * size], the other two [batch * keys, key_value_heads * size].
template <typename Number>
struct AttentionInputs {
  const Number* query;
  const Number* key;
  const Number* value;
  const int32_t* lengths;  // [batch]: keys from there on are not seen, and may be all; or null
  const int32_t*
      positions;  // [batch, queries], causal: a document begins at each 0, and no other is seen; or null
};
// Of the inputs, in rows of the same strides.
template <typename Number>
struct AttentionGradients {
  Number* query;
  Number* key;
  Number* value;
};

// For f32, and for what cuDNN's attention refuses. output [batch * queries, heads * size]; log_sums [batch, heads,
// queries] for the backward pass.
template <typename Number>
void AttentionForward(cudaStream_t stream, const AttentionShape& shape,
                      const AttentionInputs<Number>& inputs, Number* output, float* log_sums);
// `dots` [batch, heads, queries]: workspace. Gradients that are null are not computed.
template <typename Number>
void AttentionBackward(cudaStream_t stream, const AttentionShape& shape,
                       const AttentionInputs<Number>& inputs, const Number* output,
                       const Number* grad_output, const float* log_sums, float* dots,
                       const AttentionGradients<Number>& gradients);

// The loss of a head over the rows of its logits, which are `stride` numbers apart.
struct TokenLoss {
  int64_t rows, vocabulary, stride;
  const int32_t* targets;
  int32_t ignored;     // targets of this id do not count, if `valid` is there
  float smoothing;     // of a target, spread over all tokens
  bool with_gradient;  // in place of the logits
  float* row_losses;   // workspace [rows]
  int32_t* ranks;      // [rows]: of the targets (Tape::ranks); null: not wanted
  int32_t* valid;      // workspace [1]; null: all targets count
  float* loss;         // [1]
};
// loss = mean over the rows that count of log(sum exp(logits[row])) - logits[row][targets[row]], 0 if none does, and in place
// logits = rows / rows that count * (softmax(logits) - one at the target), zero in rows that do not count.
template <typename Number>
void CrossEntropy(cudaStream_t stream, const TokenLoss& loss, Number* logits);

// *to = value.
void Store(cudaStream_t stream, int64_t value, int64_t* to);

// Flat arrays.
void Fill(cudaStream_t stream, int64_t count, float value, float* values);
void AddInto(cudaStream_t stream, int64_t count, const float* values, float* sums);
void Scale(cudaStream_t stream, int64_t count, float factor, float* values);
void ConvertToBf16(cudaStream_t stream, int64_t count, const float* from, Bf16* to);
// To nearest, in place.
void RoundToBf16(cudaStream_t stream, int64_t count, float* values);
// At random; from[0] is the parameter's first element.
void RoundToBf16(cudaStream_t stream, int64_t count, const float* from,
                 const StochasticRounding& rounding, Bf16* to);

// to = a x + b y; `to` may be either.
void LinearCombination(cudaStream_t stream, int64_t count, float a, const float* x, float b,
                       const float* y, float* to);
// gradients += strength * gradients^2 * (now - read).
void CompensateDelay(cudaStream_t stream, int64_t count, float strength, const float* now,
                     const float* read, float* gradients);
void CompensateDelay(cudaStream_t stream, int64_t count, const MeanSquareCompensation& compensation,
                     const float* now, const float* read, float* mean_squares, float* gradients);

// A part of a flat array, as the kernels see a ParameterSlice.
struct Slice {
  int64_t offset;
  int64_t count;
  int32_t decays;
  int32_t first_block;  // of the launch; its blocks lie side by side
  uint64_t identity;    // as ParameterSlice's
};
// A launch over slices gives each block kSliceBlock elements of one slice: blocks[b] says which.
inline constexpr int64_t kSliceBlock = 1 << 14;
struct SliceBlock {
  int32_t slice;
  int32_t part;  // of the slice
};

// norms[slice] = sum of squares, in double. partial_sums: one double for each block.
void SquaredNorms(cudaStream_t stream, int64_t slices, int64_t blocks, const Slice* slice_table,
                  const SliceBlock* block_table, const float* values, double* partial_sums,
                  double* norms);

struct StepArrays {
  const float* weights;
  float* next_weights;  // may be `weights`
  Bf16* next_bf16;      // or null
  const float* gradients;
  const float* scales;  // of the gradients, by slice
  bool rounds_at_random;
  StochasticRounding rounding;  // then; its `parameter` is each slice's identity
};
// The step of one of compute/elementwise/. `state`: by array of the step; null where it may be lacking.
template <typename Step>
struct ElementwiseLaunch {
  void (*run)(cudaStream_t stream, int64_t blocks, const Slice* slice_table,
              const SliceBlock* block_table, const Step& step, const StepArrays& arrays,
              float* const* state);
};
template <typename... Configs>
struct ElementwiseLaunches : ElementwiseLaunch<typename Configs::Step>... {};
extern const OfElementwise<ElementwiseLaunches> kElementwise;
// Muon's parts of a step for one matrix: velocity = momentum velocity + g and direction = g +
// momentum velocity, where g is the scaled gradient; x = x / (sqrt(squared_norm) + norm_min); the
// next weights, keep w - rate x, where `arrays` are whole and the matrix is `slice`.
void NesterovDirection(cudaStream_t stream, int64_t count, float momentum, float gradient_scale,
                       const float* gradients, float* velocity, float* direction);
void Normalize(cudaStream_t stream, int64_t count, const double* squared_norm, double norm_min,
               float* x);
void MuonStep(cudaStream_t stream, const Slice& slice, float keep, float rate,
              const StepArrays& arrays, const float* x);

}  // namespace penstock::cuda
