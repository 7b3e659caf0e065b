// Attention for f32, and for what cuDNN's fused attention refuses.
//
// A warp works on one query of one head, or for the gradients of key and value on one key, and walks over the keys
// (queries, of one head after the other that reads the key) that take part, with the running maximum and sum of Milakov
// and Gimelshein, arXiv 1805.02867. Simple rather than fast: the fast path of bf16 is cuDNN's.
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

// Which query or key of which head of which sample a warp has.
struct Place {
  int64_t sample;
  int64_t head;  // of queries, or of keys and values
  int64_t step;  // time step
};

// Of `steps` in each sample for each of `heads`. False: the warp has none.
__device__ bool FindPlace(const AttentionShape& s, int64_t heads, int64_t steps, Place& place) {
  const int64_t task = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarp;
  if (task >= s.batch * heads * steps) return false;
  place = {task / steps / heads, task / steps % heads, task % steps};
  return true;
}

// The keys and values that a query's head reads.
__device__ Place KeysFor(const AttentionShape& s, const Place& query) {
  return {query.sample, query.head / s.group(), query.step};
}

// A head's rows in one sample: of queries, keys, values or their gradients, whose samples have `steps` rows each.
template <typename Number>
struct HeadRows {
  Number* first;
  int64_t stride;
  int64_t size;

  __device__ HeadRows(const AttentionShape& s, const Place& place, int64_t steps,
                      int64_t row_stride, Number* data)
      : first(data + place.sample * steps * row_stride + place.head * s.size),
        stride(row_stride),
        size(s.size) {}
  __device__ HeadRow Load(int64_t step) const { return HeadRow::Load(first + step * stride, size); }
  __device__ void Store(int64_t step, const HeadRow& row) const {
    row.Store(first + step * stride, size);
  }
};

// The numbers of a head's queries, one each, in [batch, heads, queries].
template <typename T>
__device__ T* OfQueries(const AttentionShape& s, const Place& place, T* numbers) {
  return numbers + (place.sample * s.heads + place.head) * s.queries;
}

// Keys of a sample that count.
template <typename Number>
__device__ int64_t KeysOf(const AttentionShape& s, const AttentionInputs<Number>& in,
                          const Place& place) {
  return in.lengths == nullptr ? s.keys : in.lengths[place.sample];
}

// Keys that a query sees: from the first one up to, and without, the end.
template <typename Number>
__device__ int64_t EndOfSeen(const AttentionShape& s, const AttentionInputs<Number>& in,
                             const Place& place) {
  const int64_t keys = KeysOf(s, in, place);
  return s.causal ? min(place.step + 1, keys) : keys;
}
template <typename Number>
__device__ int64_t FirstSeen(const AttentionShape& s, const AttentionInputs<Number>& in,
                             const Place& place) {
  const int64_t first = s.window == 0 ? 0 : max(place.step + 1 - s.window, int64_t{0});
  if (in.positions == nullptr) return first;
  const int32_t* const positions = in.positions + place.sample * s.queries;
  int64_t step = place.step;
  while (step > first && positions[step] != 0) --step;
  return step;
}
// Behind the last query that sees a key.
template <typename Number>
__device__ int64_t EndOfSeeing(const AttentionShape& s, const AttentionInputs<Number>& in,
                               const Place& key) {
  const int64_t end = s.window == 0 ? s.queries : min(key.step + s.window, s.queries);
  if (in.positions == nullptr) return end;
  const int32_t* const positions = in.positions + key.sample * s.queries;
  int64_t step = key.step + 1;
  while (step < end && positions[step] != 0) ++step;
  return step;
}

template <typename Number>
__global__ void ForwardKernel(AttentionShape s, float scale, AttentionInputs<Number> in,
                              Number* output, float* log_sums) {
  Place place;
  if (!FindPlace(s, s.heads, s.queries, place)) return;
  const HeadRows keys(s, KeysFor(s, place), s.keys, s.key_stride, in.key);
  const HeadRows values(s, KeysFor(s, place), s.keys, s.key_stride, in.value);
  const HeadRow query = HeadRows(s, place, s.queries, s.query_stride, in.query).Load(place.step);
  HeadRow sum_values;
  float maximum = -INFINITY, sum = 0.0f;
  const int64_t end = EndOfSeen(s, in, place);
  for (int64_t step = FirstSeen(s, in, place); step < end; ++step) {
    const float score = scale * query.Dot(keys.Load(step));
    const float next = fmaxf(maximum, score);
    const float keep = expf(maximum - next);
    const float weight = expf(score - next);
    sum_values.Scale(keep);
    sum_values.Add(values.Load(step), weight);
    sum = sum * keep + weight;
    maximum = next;
  }
  if (sum != 0.0f) sum_values.Scale(1.0f / sum);  // else nothing is seen
  HeadRows(s, place, s.queries, s.width(), output).Store(place.step, sum_values);
  if (threadIdx.x % kWarp == 0) OfQueries(s, place, log_sums)[place.step] = maximum + logf(sum);
}

// dots = output . grad_output, by query: what the softmax's gradient subtracts.
template <typename Number>
__global__ void DotsKernel(AttentionShape s, const Number* output, const Number* grad_output,
                           float* dots) {
  Place place;
  if (!FindPlace(s, s.heads, s.queries, place)) return;
  const auto row = [&](const Number* data) {
    return HeadRows(s, place, s.queries, s.width(), data).Load(place.step);
  };
  const float dot = row(output).Dot(row(grad_output));
  if (threadIdx.x % kWarp == 0) OfQueries(s, place, dots)[place.step] = dot;
}

template <typename Number>
__global__ void QueryKernel(AttentionShape s, float scale, AttentionInputs<Number> in,
                            const Number* grad_output, const float* log_sums, const float* dots,
                            Number* gradient) {
  Place place;
  if (!FindPlace(s, s.heads, s.queries, place)) return;
  const HeadRows keys(s, KeysFor(s, place), s.keys, s.key_stride, in.key);
  const HeadRows values(s, KeysFor(s, place), s.keys, s.key_stride, in.value);
  const HeadRow query = HeadRows(s, place, s.queries, s.query_stride, in.query).Load(place.step);
  const HeadRow incoming = HeadRows(s, place, s.queries, s.width(), grad_output).Load(place.step);
  const float log_sum = OfQueries(s, place, log_sums)[place.step];
  const float dot = OfQueries(s, place, dots)[place.step];
  HeadRow grad_query;
  const int64_t end = EndOfSeen(s, in, place);
  for (int64_t step = FirstSeen(s, in, place); step < end; ++step) {
    const HeadRow key = keys.Load(step);
    const float weight = expf(scale * query.Dot(key) - log_sum);
    const float grad_weight = incoming.Dot(values.Load(step));
    grad_query.Add(key, scale * weight * (grad_weight - dot));
  }
  HeadRows(s, place, s.queries, s.query_stride, gradient).Store(place.step, grad_query);
}

template <typename Number>
__global__ void KeyValueKernel(AttentionShape s, float scale, AttentionInputs<Number> in,
                               const Number* grad_output, const float* log_sums, const float* dots,
                               Number* of_keys, Number* of_values) {
  Place place;
  if (!FindPlace(s, s.key_value_heads, s.keys, place)) return;
  const HeadRow key = HeadRows(s, place, s.keys, s.key_stride, in.key).Load(place.step);
  const HeadRow value = HeadRows(s, place, s.keys, s.key_stride, in.value).Load(place.step);
  HeadRow grad_key, grad_value;
  // A key that is not seen has no gradient.
  const int64_t end = place.step < KeysOf(s, in, place) ? EndOfSeeing(s, in, place) : 0;
  for (int64_t i = 0; i < s.group(); ++i) {
    const Place reader = {place.sample, place.head * s.group() + i, place.step};
    const HeadRows queries(s, reader, s.queries, s.query_stride, in.query);
    const HeadRows incoming(s, reader, s.queries, s.width(), grad_output);
    for (int64_t step = s.causal ? place.step : 0; step < end; ++step) {
      const HeadRow query = queries.Load(step);
      const HeadRow grad_row = incoming.Load(step);
      const float weight = expf(scale * query.Dot(key) - OfQueries(s, reader, log_sums)[step]);
      grad_value.Add(grad_row, weight);
      grad_key.Add(query,
                   scale * weight * (grad_row.Dot(value) - OfQueries(s, reader, dots)[step]));
    }
  }
  if (of_keys != nullptr) {
    HeadRows(s, place, s.keys, s.key_stride, of_keys).Store(place.step, grad_key);
  }
  if (of_values != nullptr) {
    HeadRows(s, place, s.keys, s.key_stride, of_values).Store(place.step, grad_value);
  }
}

int64_t BlocksOf(const AttentionShape& s, int64_t heads, int64_t steps) {
  return CeilDiv(s.batch * heads * steps, kWarpsPerBlock);
}

float ScaleOf(const AttentionShape& s) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(s.size)));
}

}  // namespace

template <typename Number>
void AttentionForward(cudaStream_t stream, const AttentionShape& shape,
                      const AttentionInputs<Number>& inputs, Number* output, float* log_sums) {
  ForwardKernel<<<BlocksOf(shape, shape.heads, shape.queries), kBlock, 0, stream>>>(
      shape, ScaleOf(shape), inputs, output, log_sums);
}
template void AttentionForward<float>(cudaStream_t, const AttentionShape&,
                                      const AttentionInputs<float>&, float*, float*);
template void AttentionForward<Bf16>(cudaStream_t, const AttentionShape&,
                                     const AttentionInputs<Bf16>&, Bf16*, float*);

template <typename Number>
void AttentionBackward(cudaStream_t stream, const AttentionShape& shape,
                       const AttentionInputs<Number>& inputs, const Number* output,
                       const Number* grad_output, const float* log_sums, float* dots,
                       const AttentionGradients<Number>& gradients) {
  const int64_t blocks = BlocksOf(shape, shape.heads, shape.queries);
  const float scale = ScaleOf(shape);
  DotsKernel<<<blocks, kBlock, 0, stream>>>(shape, output, grad_output, dots);
  if (gradients.query != nullptr) {
    QueryKernel<<<blocks, kBlock, 0, stream>>>(shape, scale, inputs, grad_output, log_sums, dots,
                                               gradients.query);
  }
  if (gradients.key != nullptr || gradients.value != nullptr) {
    KeyValueKernel<<<BlocksOf(shape, shape.key_value_heads, shape.keys), kBlock, 0, stream>>>(
        shape, scale, inputs, grad_output, log_sums, dots, gradients.key, gradients.value);
  }
}
template void AttentionBackward<float>(cudaStream_t, const AttentionShape&,
                                       const AttentionInputs<float>&, const float*, const float*,
                                       const float*, float*, const AttentionGradients<float>&);
template void AttentionBackward<Bf16>(cudaStream_t, const AttentionShape&,
                                      const AttentionInputs<Bf16>&, const Bf16*, const Bf16*,
                                      const float*, float*, const AttentionGradients<Bf16>&);

}  // namespace penstock::cuda
