// Kernels of ops on values of any shape: functions of elements, sums, parts, tables, losses.
//
// As in kernels.h: functions queue and return, sums run in a fixed order, matrices are row-major. C++17, for nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "compute/cuda/kernels/kernels.h"
#include "compute/elementwise/activation.h"

namespace penstock::cuda {

void Activate(cudaStream_t stream, Activation activation, int64_t count, const float* x, float* y);
// dx = dy * slope. seen: the output or the input, by HasSlopeOfOutput.
void ActivateBackward(cudaStream_t stream, Activation activation, int64_t count, const float* seen,
                      const float* dy, float* dx);

// y = the values' sum, from the first to the last.
struct Addends {
  static constexpr int kMax = 16;
  const float* values[kMax];
  int count;  // 2 to kMax
};
void AddAll(cudaStream_t stream, int64_t count, const Addends& addends, float* y);
// to = a b.
void Multiply(cudaStream_t stream, int64_t count, const float* a, const float* b, float* to);

// A matrix inside another: where its rows begin, and how far apart.
struct Columns {
  int64_t stride;  // floats from row to row
  int64_t first;   // column
};
// to [rows, width] = from [rows, width], each inside a wider matrix.
void CopyColumns(cudaStream_t stream, int64_t rows, int64_t width, const float* from,
                 const Columns& from_columns, float* to, const Columns& to_columns);
// to [rows, to_columns.stride] = from [rows, width] in its columns, zeros elsewhere.
void PadColumns(cudaStream_t stream, int64_t rows, int64_t width, const float* from, float* to,
                const Columns& to_columns);

// to = dropout(from) of [rows, width], where one mask of `masked_rows` rows is for `steps` times as many rows in turn.
void MaskSteps(cudaStream_t stream, int64_t rows, int64_t width, int64_t steps, int64_t masked_rows,
               const float* from, const DeviceMask& dropout, float* to);

// y [samples, count] = x + row, for each sample.
void AddToSamples(cudaStream_t stream, int64_t samples, int64_t count, const float* x,
                  const float* row, float* y);
// sums [count] += the samples of values [samples, count], from the first to the last.
void AddSamples(cudaStream_t stream, int64_t samples, int64_t count, const float* values,
                float* sums);

// output [rows, width] = table[ids[row]]. row_drop: of the table's rows, as of a matrix of one column.
void LookUp(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* ids,
            const float* table, const DeviceMask& row_drop, float* output);
// table[ids[row]] += gradient[row]. order: of SortRows; sums: IdWindowSums of id_windows.h.
void LookUpBackward(cudaStream_t stream, int64_t rows, int64_t width, const int32_t* order,
                    const float* gradient, const DeviceMask& row_drop, float* table, float* sums);

// The target id that stands for none: no class has it.
inline constexpr int32_t kNoTarget = -1;

// The mean cross-entropy of logits [rows, classes] over the targets that are not `ignored`, 0 if there is none. Of a
// target's distribution, `smoothing` is spread over all classes.
struct ClassLoss {
  int64_t rows, classes;
  const float* logits;
  const int32_t* targets;
  int32_t ignored;
  float smoothing;
  float* log_sums;  // [rows], for the backward pass
  int32_t* valid;   // [1], targets that count, for the backward pass
  int32_t* ranks;   // [rows], written by the forward pass (Tape::ranks); null: not wanted
};
// row_losses [rows]: workspace.
void ClassLossForward(cudaStream_t stream, const ClassLoss& loss, float* row_losses, float* result);
// gradient [rows, classes] = loss_scale times that of the loss.
void ClassLossBackward(cudaStream_t stream, const ClassLoss& loss, float loss_scale,
                       float* gradient);

// result [1] = the mean of (a - b)^2. The workspace has MeanSquareWorkspaceDoubles.
int64_t MeanSquareWorkspaceDoubles(int64_t count);
void MeanSquare(cudaStream_t stream, int64_t count, const float* a, const float* b,
                double* workspace, float* result);
// to = factor (a - b).
void Difference(cudaStream_t stream, int64_t count, float factor, const float* a, const float* b,
                float* to);

}  // namespace penstock::cuda
