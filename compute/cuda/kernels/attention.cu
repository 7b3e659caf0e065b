// Causal attention for f32 and for heads that cuDNN's fused attention refuses.
//
// A warp works on one query (or, for the gradients of key and value, on one key) of one head and walks
// over the keys (queries) that take part, with the running maximum and sum of Milakov and Gimelshein,
// arXiv 1805.02867. Simple rather than fast: the fast path of bf16 is cuDNN's.
#include "compute/cuda/kernels/common.cuh"

namespace penstock::cuda {
namespace {

constexpr int kWarpsPerBlock = kBlock / kWarp;
constexpr int kLaneNumbersMax = kAttentionSizeMax / kWarp;

// One row of a head, spread over the lanes of a warp.
struct HeadRow {
  float value[kLaneNumbersMax] = {};

  template <typename Number>
  __device__ static HeadRow Load(const Number* from, int64_t size) {
    HeadRow row;
    for (int i = 0; i < kLaneNumbersMax; ++i) {
      const int64_t at = i * kWarp + threadIdx.x % kWarp;
      if (at < size) row.value[i] = ToFloat(from[at]);
    }
    return row;
  }
  template <typename Number>
  __device__ void Store(Number* to, int64_t size) const {
    for (int i = 0; i < kLaneNumbersMax; ++i) {
      const int64_t at = i * kWarp + threadIdx.x % kWarp;
      if (at < size) to[at] = FromFloat<Number>(value[i]);
    }
  }
  __device__ float Dot(const HeadRow& other) const {
    float sum = 0.0f;
    for (int i = 0; i < kLaneNumbersMax; ++i) sum += value[i] * other.value[i];
    return WarpSum(sum);
  }
  __device__ void Add(const HeadRow& other, float factor) {
    for (int i = 0; i < kLaneNumbersMax; ++i) value[i] += other.value[i] * factor;
  }
  __device__ void Scale(float factor) {
    for (int i = 0; i < kLaneNumbersMax; ++i) value[i] *= factor;
  }
};

// Which row of which head of which sample a warp has.
struct Place {
  int64_t row;        // of the microbatch
  int64_t step;       // time step
  int64_t head_first; // column of the head in rows of heads * size
  int64_t statistic;  // index in [batch, heads, time]
  int64_t first_row;  // of the sample
};

__device__ bool FindPlace(const AttentionShape& s, Place& place) {
  const int64_t task = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarp;
  if (task >= s.batch * s.heads * s.time) return false;
  const int64_t step = task % s.time;
  const int64_t head = task / s.time % s.heads;
  const int64_t sample = task / s.time / s.heads;
  place = {sample * s.time + step, step, head * s.size, task, sample * s.time};
  return true;
}

template <typename Number>
__global__ void ForwardKernel(AttentionShape s, float scale, const Number* expansion, Number* output,
                              float* log_sums) {
  Place place;
  if (!FindPlace(s, place)) return;
  const int64_t width = s.heads * s.size;
  const int64_t stride = 3 * width;
  const Number* base = expansion + place.head_first;
  const HeadRow query = HeadRow::Load(base + place.row * stride, s.size);
  HeadRow sum_values;
  float maximum = -INFINITY, sum = 0.0f;
  for (int64_t step = 0; step <= place.step; ++step) {
    const Number* row = base + (place.first_row + step) * stride;
    const float score = scale * query.Dot(HeadRow::Load(row + width, s.size));
    const float next = fmaxf(maximum, score);
    const float keep = expf(maximum - next);
    const float weight = expf(score - next);
    sum_values.Scale(keep);
    sum_values.Add(HeadRow::Load(row + 2 * width, s.size), weight);
    sum = sum * keep + weight;
    maximum = next;
  }
  sum_values.Scale(1.0f / sum);
  sum_values.Store(output + place.row * width + place.head_first, s.size);
  if (threadIdx.x % kWarp == 0) log_sums[place.statistic] = maximum + logf(sum);
}

// dots = output . grad_output, by query: what the softmax's gradient subtracts.
template <typename Number>
__global__ void DotsKernel(AttentionShape s, const Number* output, const Number* grad_output,
                           float* dots) {
  Place place;
  if (!FindPlace(s, place)) return;
  const int64_t at = place.row * s.heads * s.size + place.head_first;
  const float dot =
      HeadRow::Load(output + at, s.size).Dot(HeadRow::Load(grad_output + at, s.size));
  if (threadIdx.x % kWarp == 0) dots[place.statistic] = dot;
}

template <typename Number>
__global__ void QueryKernel(AttentionShape s, float scale, const Number* expansion,
                            const Number* grad_output, const float* log_sums, const float* dots,
                            Number* gradient) {
  Place place;
  if (!FindPlace(s, place)) return;
  const int64_t width = s.heads * s.size;
  const int64_t stride = 3 * width;
  const Number* base = expansion + place.head_first;
  const HeadRow query = HeadRow::Load(base + place.row * stride, s.size);
  const HeadRow incoming =
      HeadRow::Load(grad_output + place.row * width + place.head_first, s.size);
  HeadRow grad_query;
  for (int64_t step = 0; step <= place.step; ++step) {
    const Number* row = base + (place.first_row + step) * stride;
    const HeadRow key = HeadRow::Load(row + width, s.size);
    const float weight = expf(scale * query.Dot(key) - log_sums[place.statistic]);
    const float grad_weight = incoming.Dot(HeadRow::Load(row + 2 * width, s.size));
    grad_query.Add(key, scale * weight * (grad_weight - dots[place.statistic]));
  }
  grad_query.Store(gradient + place.row * stride + place.head_first, s.size);
}

template <typename Number>
__global__ void KeyValueKernel(AttentionShape s, float scale, const Number* expansion,
                               const Number* grad_output, const float* log_sums, const float* dots,
                               Number* gradient) {
  Place place;
  if (!FindPlace(s, place)) return;
  const int64_t width = s.heads * s.size;
  const int64_t stride = 3 * width;
  const Number* base = expansion + place.head_first;
  const HeadRow key = HeadRow::Load(base + place.row * stride + width, s.size);
  const HeadRow value = HeadRow::Load(base + place.row * stride + 2 * width, s.size);
  HeadRow grad_key, grad_value;
  for (int64_t step = place.step; step < s.time; ++step) {
    const int64_t row = place.first_row + step;
    const int64_t statistic = place.statistic - place.step + step;
    const HeadRow query = HeadRow::Load(base + row * stride, s.size);
    const HeadRow incoming = HeadRow::Load(grad_output + row * width + place.head_first, s.size);
    const float weight = expf(scale * query.Dot(key) - log_sums[statistic]);
    grad_value.Add(incoming, weight);
    grad_key.Add(query, scale * weight * (incoming.Dot(value) - dots[statistic]));
  }
  Number* to = gradient + place.row * stride + place.head_first;
  grad_key.Store(to + width, s.size);
  grad_value.Store(to + 2 * width, s.size);
}

int64_t BlocksOf(const AttentionShape& s) {
  return CeilDiv(s.batch * s.heads * s.time, kWarpsPerBlock);
}

float ScaleOf(const AttentionShape& s) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(s.size)));
}

}  // namespace

template <typename Number>
void AttentionForward(cudaStream_t stream, const AttentionShape& shape, const Number* expansion,
                      Number* output, float* log_sums) {
  ForwardKernel<<<BlocksOf(shape), kBlock, 0, stream>>>(shape, ScaleOf(shape), expansion, output,
                                                        log_sums);
}
template void AttentionForward<float>(cudaStream_t, const AttentionShape&, const float*, float*,
                                      float*);
template void AttentionForward<Bf16>(cudaStream_t, const AttentionShape&, const Bf16*, Bf16*,
                                     float*);

template <typename Number>
void AttentionBackward(cudaStream_t stream, const AttentionShape& shape, const Number* expansion,
                       const Number* output, const Number* grad_output, const float* log_sums,
                       float* dots, Number* gradient) {
  const int64_t blocks = BlocksOf(shape);
  const float scale = ScaleOf(shape);
  DotsKernel<<<blocks, kBlock, 0, stream>>>(shape, output, grad_output, dots);
  QueryKernel<<<blocks, kBlock, 0, stream>>>(shape, scale, expansion, grad_output, log_sums, dots,
                                             gradient);
  KeyValueKernel<<<blocks, kBlock, 0, stream>>>(shape, scale, expansion, grad_output, log_sums,
                                                dots, gradient);
}
template void AttentionBackward<float>(cudaStream_t, const AttentionShape&, const float*,
                                       const float*, const float*, const float*, float*, float*);
template void AttentionBackward<Bf16>(cudaStream_t, const AttentionShape&, const Bf16*, const Bf16*,
                                      const Bf16*, const float*, float*, Bf16*);

}  // namespace penstock::cuda
