// Losses: means over a microbatch, their sums in double and in a fixed order.
#include "compute/cuda/kernels/common.cuh"
#include "compute/cuda/kernels/values.h"

namespace penstock::cuda {
namespace {

// A block works on a row.
__global__ void ClassRowKernel(ClassLoss a, float* row_losses) {
  const int64_t row = blockIdx.x;
  const float* logits = a.logits + row * a.classes;
  float maximum = -INFINITY;
  for (int64_t c = threadIdx.x; c < a.classes; c += kBlock) maximum = fmaxf(maximum, logits[c]);
  maximum = BlockMax(maximum);
  float exponentials = 0.0f, sum = 0.0f;
  for (int64_t c = threadIdx.x; c < a.classes; c += kBlock) {
    exponentials += expf(logits[c] - maximum);
    sum += logits[c];
  }
  exponentials = BlockSum(exponentials);
  sum = BlockSum(sum);
  const int32_t target = a.targets[row];
  if (a.ranks != nullptr) {
    const bool counts = target != a.ignored;
    const int rank = counts ? BlockSum(HigherScores(logits, a.classes, target)) : -1;
    if (threadIdx.x == 0) a.ranks[row] = rank;
  }
  if (threadIdx.x != 0) return;
  const float log_sum = maximum + logf(exponentials);
  a.log_sums[row] = log_sum;
  if (target == a.ignored) {
    row_losses[row] = 0.0f;
    return;
  }
  const float mean = sum / static_cast<float>(a.classes);
  // Without smoothing the mean, which may be infinite, must not count.
  const float expected =
      a.smoothing > 0.0f ? logits[target] + a.smoothing * (mean - logits[target]) : logits[target];
  row_losses[row] = log_sum - expected;
}

__global__ void ClassMeanKernel(ClassLoss a, const float* row_losses, float* result) {
  double sum = 0.0;
  int valid = 0;
  for (int64_t row = threadIdx.x; row < a.rows; row += kBlock) {
    sum += row_losses[row];
    if (a.targets[row] != a.ignored) ++valid;
  }
  sum = BlockSum(sum);
  valid = BlockSum(valid);
  if (threadIdx.x != 0) return;
  *a.valid = valid;
  *result = valid == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(valid));
}

// A block works on a row.
__global__ void ClassGradientKernel(ClassLoss a, float loss_scale, float* gradient) {
  const int64_t row = blockIdx.x;
  const float* logits = a.logits + row * a.classes;
  float* to = gradient + row * a.classes;
  const int32_t target = a.targets[row];
  const bool counts = target != a.ignored;
  const float scale = loss_scale / static_cast<float>(max(*a.valid, 1));
  const float at_others = a.smoothing / static_cast<float>(a.classes);
  const float at_target = 1.0f - a.smoothing + at_others;
  const float log_sum = a.log_sums[row];
  for (int64_t c = threadIdx.x; c < a.classes; c += kBlock) {
    const float wanted = c == target ? at_target : at_others;
    to[c] = counts ? (expf(logits[c] - log_sum) - wanted) * scale : 0.0f;
  }
}

constexpr int64_t kSquaresPerBlock = 1 << 14;

__global__ void SquaresKernel(int64_t count, const float* a, const float* b, double* partial) {
  const int64_t first = int64_t{blockIdx.x} * kSquaresPerBlock;
  const int64_t end = min(first + kSquaresPerBlock, count);
  double sum = 0.0;
  for (int64_t at = first + threadIdx.x; at < end; at += kBlock) {
    const double d = static_cast<double>(a[at]) - static_cast<double>(b[at]);
    sum += d * d;
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void MeanOfPartsKernel(int64_t parts, int64_t count, const double* partial,
                                  float* result) {
  double sum = 0.0;
  for (int64_t part = threadIdx.x; part < parts; part += kBlock) sum += partial[part];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) *result = static_cast<float>(sum / static_cast<double>(count));
}

}  // namespace

void ClassLossForward(cudaStream_t stream, const ClassLoss& loss, float* row_losses,
                      float* result) {
  ClassRowKernel<<<loss.rows, kBlock, 0, stream>>>(loss, row_losses);
  ClassMeanKernel<<<1, kBlock, 0, stream>>>(loss, row_losses, result);
}

void ClassLossBackward(cudaStream_t stream, const ClassLoss& loss, float loss_scale,
                       float* gradient) {
  ClassGradientKernel<<<loss.rows, kBlock, 0, stream>>>(loss, loss_scale, gradient);
}

int64_t MeanSquareWorkspaceDoubles(int64_t count) { return CeilDiv(count, kSquaresPerBlock); }

void MeanSquare(cudaStream_t stream, int64_t count, const float* a, const float* b,
                double* workspace, float* result) {
  const int64_t parts = MeanSquareWorkspaceDoubles(count);
  SquaresKernel<<<parts, kBlock, 0, stream>>>(count, a, b, workspace);
  MeanOfPartsKernel<<<1, kBlock, 0, stream>>>(parts, count, workspace, result);
}

}  // namespace penstock::cuda
