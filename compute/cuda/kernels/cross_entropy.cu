// Mean cross-entropy and, in one pass, its gradient in place of the logits; no probability is stored.
#include "compute/cuda/kernels/for_each.cuh"

namespace penstock::cuda {
namespace {

// A block works on a row, kPart numbers a thread at once. REQUIRES: rows begin at multiples of their bytes.
template <typename Number, int kPart>
__global__ void RowKernel(int64_t vocabulary, int64_t stride, Number* logits,
                          const int32_t* targets, float smoothing, bool with_gradient,
                          float* row_losses, int32_t* ranks) {
  using Numbers = Pack<Number, kPart>;
  Number* row = logits + int64_t{blockIdx.x} * stride;
  auto* parts = reinterpret_cast<Numbers*>(row);
  const int64_t whole = vocabulary / kPart;  // parts; what is left of the row is less than one
  const int64_t rest = whole * kPart + threadIdx.x;
  const int32_t target = targets[blockIdx.x];
  // The sum is of exp(logit - maximum), with the largest logit that the thread has seen.
  float maximum = -INFINITY, sum = 0.0f, of_logits = 0.0f;
  const auto add = [&](const float* values, int count) {
    float larger = maximum;
    for (int i = 0; i < count; ++i) {
      larger = fmaxf(larger, values[i]);
      if (isnan(values[i])) sum = values[i];  // fmaxf leaves it out; the loss must not
    }
    if (larger == -INFINITY) return;
    sum *= expf(maximum - larger);
    for (int i = 0; i < count; ++i) sum += expf(values[i] - larger);
    for (int i = 0; i < count; ++i) of_logits += values[i];
    maximum = larger;
  };
  for (int64_t p = threadIdx.x; p < whole; p += kBlock) {
    const Numbers numbers = parts[p];
    float values[kPart];
    for (int i = 0; i < kPart; ++i) values[i] = ToFloat(numbers.at[i]);
    add(values, kPart);
  }
  if (rest < vocabulary) {
    const float value = ToFloat(row[rest]);
    add(&value, 1);
  }
  const float of_thread = maximum;
  maximum = BlockMax(maximum);
  // A thread that has seen nothing larger than minus infinity has the sum 0, or one that is no number.
  sum = BlockSum(of_thread == -INFINITY ? sum : sum * expf(of_thread - maximum));
  float score = ToFloat(row[target]);
  // Without smoothing the mean, which may be infinite, must not count.
  if (smoothing > 0.0f) {
    score += smoothing * (BlockSum(of_logits) / static_cast<float>(vocabulary) - score);
  }
  if (threadIdx.x == 0) row_losses[blockIdx.x] = maximum + logf(sum) - score;
  if (ranks != nullptr) {
    const int rank = BlockSum(HigherScores(row, vocabulary, target));
    if (threadIdx.x == 0) ranks[blockIdx.x] = rank;
  }
  if (!with_gradient) return;
  __syncthreads();  // the target's logit has been read
  const float inverse = 1.0f / sum;
  const float at_others = smoothing / static_cast<float>(vocabulary);
  const float at_target = 1.0f - smoothing + at_others;
  const auto gradient = [&](Number logit, int64_t c) {
    const float probability = expf(ToFloat(logit) - maximum) * inverse;
    return FromFloat<Number>(probability - (c == target ? at_target : at_others));
  };
  for (int64_t p = threadIdx.x; p < whole; p += kBlock) {
    Numbers numbers = parts[p];
    for (int i = 0; i < kPart; ++i) numbers.at[i] = gradient(numbers.at[i], kPart * p + i);
    parts[p] = numbers;
  }
  if (rest < vocabulary) row[rest] = gradient(row[rest], rest);
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
                  Number* logits, const int32_t* targets, float smoothing, bool with_gradient,
                  float* row_losses, int32_t* ranks, float* loss) {
  constexpr int kPart = 16 / sizeof(Number);
  const bool is_aligned = stride % kPart == 0 && reinterpret_cast<uintptr_t>(logits) % 16 == 0;
  const auto kernel = is_aligned ? RowKernel<Number, kPart> : RowKernel<Number, 1>;
  kernel<<<rows, kBlock, 0, stream>>>(vocabulary, stride, logits, targets, smoothing, with_gradient,
                                      row_losses, ranks);
  MeanKernel<<<1, kBlock, 0, stream>>>(rows, row_losses, loss);
}
template void CrossEntropy<float>(cudaStream_t, int64_t, int64_t, int64_t, float*, const int32_t*,
                                  float, bool, float*, int32_t*, float*);
template void CrossEntropy<Bf16>(cudaStream_t, int64_t, int64_t, int64_t, Bf16*, const int32_t*,
                                 float, bool, float*, int32_t*, float*);

}  // namespace penstock::cuda
