// Mean cross-entropy and, in one pass, its gradient in place of the logits; no probability is stored.
#include "compute/cuda/kernels/for_each.cuh"

namespace penstock::cuda {
namespace {

// valid [1] = how many targets count.
__global__ void ValidKernel(TokenLoss a) {
  int valid = 0;
  for (int64_t row = threadIdx.x; row < a.rows; row += kBlock) {
    if (a.targets[row] != a.ignored) ++valid;
  }
  valid = BlockSum(valid);
  if (threadIdx.x == 0) *a.valid = valid;
}

// Of a row whose target does not count.
template <int kThreads, typename Number>
__device__ void LeaveOut(const TokenLoss& a, Number* row) {
  if (threadIdx.x == 0) a.row_losses[blockIdx.x] = 0.0f;
  if (threadIdx.x == 0 && a.ranks != nullptr) a.ranks[blockIdx.x] = -1;
  if (!a.with_gradient) return;
  for (int64_t c = threadIdx.x; c < a.vocabulary; c += kThreads) row[c] = FromFloat<Number>(0.0f);
}

// Threads of a block that keeps its row, and packs that each of them loads at once: two such blocks keep as many bytes on
// their way as a multiprocessor full of smaller ones.
constexpr int kKeepingBlock = 512;
constexpr int kBatch = 2;

// A block of kThreads works on a row, kPart numbers a thread at once. With kKeeps it keeps the row in shared memory, and
// reads it once. REQUIRES: rows begin at multiples of kPart numbers' bytes.
template <typename Number, int kPart, int kThreads, bool kKeeps>
__global__ void __launch_bounds__(kThreads) RowKernel(TokenLoss a, Number* logits) {
  using Numbers = Pack<Number, kPart>;
  extern __shared__ uint4 shared[];
  auto* const kept = reinterpret_cast<Numbers*>(shared);  // each thread reads what it wrote
  const int64_t vocabulary = a.vocabulary;
  Number* row = logits + int64_t{blockIdx.x} * a.stride;
  auto* parts = reinterpret_cast<Numbers*>(row);
  const int64_t whole = vocabulary / kPart;  // parts; what is left of the row is less than one
  const int64_t rest = whole * kPart + threadIdx.x;
  const int32_t target = a.targets[blockIdx.x];
  if (a.valid != nullptr && target == a.ignored) return LeaveOut<kThreads>(a, row);
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
  const auto add_pack = [&](const Numbers& numbers) {
    float values[kPart];
    for (int i = 0; i < kPart; ++i) values[i] = ToFloat(numbers.at[i]);
    add(values, kPart);
  };
  for (int64_t p = threadIdx.x; p < whole; p += kBatch * kThreads) {
    const int64_t second = p + kThreads;
    const Numbers first_pack = parts[p];
    const Numbers second_pack = second < whole ? parts[second] : first_pack;
    add_pack(first_pack);
    if (second < whole) add_pack(second_pack);
    if constexpr (kKeeps) {
      kept[p] = first_pack;
      if (second < whole) kept[second] = second_pack;
    }
  }
  if (rest < vocabulary) {
    const float value = ToFloat(row[rest]);
    add(&value, 1);
  }
  const float of_thread = maximum;
  maximum = BlockMax<kThreads>(maximum);
  // A thread that has seen nothing larger than minus infinity has the sum 0, or one that is no number.
  sum = BlockSum<kThreads>(of_thread == -INFINITY ? sum : sum * expf(of_thread - maximum));
  float score = ToFloat(row[target]);
  // Without smoothing the mean, which may be infinite, must not count.
  if (a.smoothing > 0.0f) {
    score += a.smoothing * (BlockSum<kThreads>(of_logits) / static_cast<float>(vocabulary) - score);
  }
  if (threadIdx.x == 0) a.row_losses[blockIdx.x] = maximum + logf(sum) - score;
  if (a.ranks != nullptr) {
    const int rank = BlockSum<kThreads>(HigherScores<kThreads>(row, vocabulary, target));
    if (threadIdx.x == 0) a.ranks[blockIdx.x] = rank;
  }
  if (!a.with_gradient) return;
  __syncthreads();  // the target's logit has been read
  const float inverse = 1.0f / sum;
  const float at_others = a.smoothing / static_cast<float>(vocabulary);
  const float at_target = 1.0f - a.smoothing + at_others;
  // Products scale by the rows, of which these count.
  const float factor =
      a.valid == nullptr ? 1.0f : static_cast<float>(a.rows) / static_cast<float>(*a.valid);
  const auto gradient = [&](Number logit, int64_t c) {
    const float probability = expf(ToFloat(logit) - maximum) * inverse;
    return FromFloat<Number>((probability - (c == target ? at_target : at_others)) * factor);
  };
  for (int64_t p = threadIdx.x; p < whole; p += kThreads) {
    Numbers numbers = kKeeps ? kept[p] : parts[p];
    for (int i = 0; i < kPart; ++i) numbers.at[i] = gradient(numbers.at[i], kPart * p + i);
    parts[p] = numbers;
  }
  if (rest < vocabulary) row[rest] = gradient(row[rest], rest);
}

__global__ void MeanKernel(TokenLoss a) {
  double sum = 0.0;
  for (int64_t row = threadIdx.x; row < a.rows; row += kBlock) sum += a.row_losses[row];
  sum = BlockSum(sum);
  if (threadIdx.x != 0) return;
  const int64_t valid = a.valid == nullptr ? a.rows : *a.valid;
  *a.loss = valid == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(valid));
}

// Smaller rows stay in the caches.
constexpr int64_t kKeptBytesMin = 32 << 10;
// Of the shared memory that a block takes, what is not its row: sums of warps, and what the system reserves.
constexpr int64_t kOtherSharedBytes = 2048;

// Whether two blocks of a multiprocessor can keep a row of this size each; then the kernel may use as much.
bool CanKeep(const void* kernel, int64_t row_bytes) {
  int device = 0, of_block = 0, of_multiprocessor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&of_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess ||
      cudaDeviceGetAttribute(&of_multiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                             device) != cudaSuccess) {
    return false;
  }
  const int64_t bytes = row_bytes + kOtherSharedBytes;
  if (bytes > of_block || 2 * bytes > of_multiprocessor) return false;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(row_bytes)) == cudaSuccess) {
    return true;
  }
  (void)cudaGetLastError();  // the other kernel does it
  return false;
}

}  // namespace

template <typename Number>
void CrossEntropy(cudaStream_t stream, const TokenLoss& loss, Number* logits) {
  constexpr int kPart = 16 / sizeof(Number);
  const bool is_aligned = loss.stride % kPart == 0 && reinterpret_cast<uintptr_t>(logits) % 16 == 0;
  if (loss.valid != nullptr) ValidKernel<<<1, kBlock, 0, stream>>>(loss);
  const auto keeping = RowKernel<Number, kPart, kKeepingBlock, true>;
  const int64_t row_bytes = loss.vocabulary / kPart * 16;
  if (is_aligned && loss.with_gradient && row_bytes >= kKeptBytesMin &&
      CanKeep(reinterpret_cast<const void*>(keeping), row_bytes)) {
    keeping<<<loss.rows, kKeepingBlock, row_bytes, stream>>>(loss, logits);
  } else {
    const auto kernel =
        is_aligned ? RowKernel<Number, kPart, kBlock, false> : RowKernel<Number, 1, kBlock, false>;
    kernel<<<loss.rows, kBlock, 0, stream>>>(loss, logits);
  }
  MeanKernel<<<1, kBlock, 0, stream>>>(loss);
}
template void CrossEntropy<float>(cudaStream_t, const TokenLoss&, float*);
template void CrossEntropy<Bf16>(cudaStream_t, const TokenLoss&, Bf16*);

}  // namespace penstock::cuda
