// Mean cross-entropy and, in one pass, its gradient in place of the logits; no probability is stored.
#include "compute/cuda/kernels/common.cuh"

namespace penstock::cuda {
namespace {

// A block works on a row.
template <typename Number>
__global__ void RowKernel(int64_t vocabulary, int64_t stride, Number* logits, const int32_t* targets,
                          bool with_gradient, float* row_losses, int32_t* ranks) {
  Number* row = logits + int64_t{blockIdx.x} * stride;
  const int32_t target = targets[blockIdx.x];
  float maximum = -INFINITY;
  for (int64_t c = threadIdx.x; c < vocabulary; c += kBlock) maximum = fmaxf(maximum, ToFloat(row[c]));
  maximum = BlockMax(maximum);
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < vocabulary; c += kBlock) sum += expf(ToFloat(row[c]) - maximum);
  sum = BlockSum(sum);
  if (threadIdx.x == 0) row_losses[blockIdx.x] = maximum + logf(sum) - ToFloat(row[target]);
  if (ranks != nullptr) {
    const int rank = BlockSum(HigherScores(row, vocabulary, target));
    if (threadIdx.x == 0) ranks[blockIdx.x] = rank;
  }
  if (!with_gradient) return;
  __syncthreads();  // the target's logit has been read
  for (int64_t c = threadIdx.x; c < vocabulary; c += kBlock) {
    const float probability = expf(ToFloat(row[c]) - maximum) / sum;
    row[c] = FromFloat<Number>(c == target ? probability - 1.0f : probability);
  }
}

__global__ void MeanKernel(int64_t rows, const float* row_losses, float* loss) {
  double sum = 0.0;
  for (int64_t row = threadIdx.x; row < rows; row += kBlock) sum += row_losses[row];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum / static_cast<double>(rows));
}

}  // namespace

template <typename Number>
void CrossEntropy(cudaStream_t stream, int64_t rows, int64_t vocabulary, int64_t stride,
                  Number* logits, const int32_t* targets, bool with_gradient, float* row_losses,
                  int32_t* ranks, float* loss) {
  RowKernel<<<rows, kBlock, 0, stream>>>(vocabulary, stride, logits, targets, with_gradient,
                                         row_losses, ranks);
  MeanKernel<<<1, kBlock, 0, stream>>>(rows, row_losses, loss);
}
template void CrossEntropy<float>(cudaStream_t, int64_t, int64_t, int64_t, float*, const int32_t*,
                                  bool, float*, int32_t*, float*);
template void CrossEntropy<Bf16>(cudaStream_t, int64_t, int64_t, int64_t, Bf16*, const int32_t*,
                                 bool, float*, int32_t*, float*);

}  // namespace penstock::cuda
