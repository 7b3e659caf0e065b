// Additive attention and its gradient. A block works on one query of a sample, or for the gradients of keys and memory on
// one key; nothing is added atomically. The hyperbolic tangents, one for each query, key and unit, are computed again in
// the gradients.
#include "compute/cuda/kernels/common.cuh"
#include "compute/cuda/kernels/float_math.cuh"
#include "compute/cuda/kernels/sequences.h"

namespace penstock::cuda {
namespace {

__device__ inline int64_t KeysOf(const AdditiveAttention& a, int64_t sample) {
  return a.lengths == nullptr ? a.keys : a.lengths[sample];
}

// results[k] = the sum over a warp's lanes of term(k, i) for i below `size`, for each key.
template <typename Term>
__device__ void SumByKey(int64_t keys, int64_t size, float* results, Term term) {
  for (int64_t k = threadIdx.x / kWarp; k < keys; k += kBlock / kWarp) {
    float sum = 0.0f;
    for (int64_t i = threadIdx.x % kWarp; i < size; i += kWarp) sum += term(k, i);
    sum = WarpSum(sum);
    if (threadIdx.x % kWarp == 0) results[k] = sum;
  }
  __syncthreads();
}

__global__ void ForwardKernel(AdditiveAttention a, float* output) {
  const int64_t row = blockIdx.x;  // of the queries
  const int64_t sample = row / a.queries;
  const int64_t keys = KeysOf(a, sample);
  const float* query = a.query + row * a.units;
  const float* key = a.key + sample * a.keys * a.units;
  float* weights = a.weights + row * a.keys;
  SumByKey(keys, a.units, weights, [&](int64_t k, int64_t u) {
    return a.direction[u] * Tanh::Value(query[u] + key[k * a.units + u]);
  });
  float maximum = -INFINITY;
  for (int64_t k = threadIdx.x; k < keys; k += kBlock) maximum = fmaxf(maximum, weights[k]);
  maximum = BlockMax(maximum);
  float sum = 0.0f;
  for (int64_t k = threadIdx.x; k < keys; k += kBlock) {
    weights[k] = expf(weights[k] - maximum);
    sum += weights[k];
  }
  sum = BlockSum(sum);
  for (int64_t k = threadIdx.x; k < keys; k += kBlock) weights[k] /= sum;
  __syncthreads();
  const float* memory = a.memory + sample * a.keys * a.width;
  for (int64_t c = threadIdx.x; c < a.width; c += kBlock) {
    float mean = 0.0f;
    for (int64_t k = 0; k < keys; ++k) mean += weights[k] * memory[k * a.width + c];
    output[row * a.width + c] = mean;
  }
}

// The slopes of the scores, and what follows from those of one query.
__global__ void QueryKernel(AdditiveAttention a, AdditiveAttentionGradients g) {
  const int64_t row = blockIdx.x;  // of the queries
  const int64_t sample = row / a.queries;
  const int64_t keys = KeysOf(a, sample);
  const float* weights = a.weights + row * a.keys;
  const float* incoming = g.output + row * a.width;
  const float* memory = a.memory + sample * a.keys * a.width;
  float* slopes = g.slopes + row * a.keys;
  SumByKey(keys, a.width, slopes,
           [&](int64_t k, int64_t c) { return incoming[c] * memory[k * a.width + c]; });
  float mean = 0.0f;  // of the weights' slopes
  for (int64_t k = threadIdx.x; k < keys; k += kBlock) mean += weights[k] * slopes[k];
  mean = BlockSum(mean);
  for (int64_t k = threadIdx.x; k < keys; k += kBlock) {
    slopes[k] = weights[k] * (slopes[k] - mean);
  }
  __syncthreads();
  const float* query = a.query + row * a.units;
  const float* key = a.key + sample * a.keys * a.units;
  for (int64_t u = threadIdx.x; u < a.units; u += kBlock) {
    float of_query = 0.0f, of_direction = 0.0f;
    for (int64_t k = 0; k < keys; ++k) {
      const float squashed = Tanh::Value(query[u] + key[k * a.units + u]);
      of_query += slopes[k] * a.direction[u] * Tanh::Slope(squashed);
      of_direction += slopes[k] * squashed;
    }
    g.query[row * a.units + u] = of_query;
    g.direction[row * a.units + u] = of_direction;
  }
}

// From the slopes of all queries.
__global__ void KeyKernel(AdditiveAttention a, AdditiveAttentionGradients g) {
  const int64_t row = blockIdx.x;  // of the keys
  const int64_t sample = row / a.keys;
  const int64_t k = row % a.keys;
  // A key that is not seen has no gradient.
  const int64_t queries = k < KeysOf(a, sample) ? a.queries : 0;
  const int64_t first_row = sample * a.queries;
  for (int64_t u = threadIdx.x; u < a.units; u += kBlock) {
    float sum = 0.0f;
    for (int64_t q = first_row; q < first_row + queries; ++q) {
      const float squashed = Tanh::Value(a.query[q * a.units + u] + a.key[row * a.units + u]);
      sum += g.slopes[q * a.keys + k] * a.direction[u] * Tanh::Slope(squashed);
    }
    g.key[row * a.units + u] = sum;
  }
  if (g.memory == nullptr) return;
  for (int64_t c = threadIdx.x; c < a.width; c += kBlock) {
    float sum = 0.0f;
    for (int64_t q = first_row; q < first_row + queries; ++q) {
      sum += a.weights[q * a.keys + k] * g.output[q * a.width + c];
    }
    g.memory[row * a.width + c] = sum;
  }
}

// |v|, to every thread of the one block.
__device__ double LengthOf(int64_t count, const float* v) {
  double squares = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += kBlock) squares += double{v[i]} * double{v[i]};
  return sqrt(BlockSum(squares));
}

__global__ void DirectionKernel(int64_t count, const float* v, const float* length,
                                float* direction) {
  const auto factor = static_cast<float>(double{*length} / LengthOf(count, v));
  for (int64_t i = threadIdx.x; i < count; i += kBlock) direction[i] = factor * v[i];
}

// With n = v / |v| and d the gradient of the direction: that of v is length / |v| (d - (d n) n), that of the length d n.
__global__ void DirectionGradientKernel(int64_t count, const float* v, const float* length,
                                        const float* grad_direction, float* grad_v,
                                        float* grad_length) {
  const double size = LengthOf(count, v);
  double along = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += kBlock) along += grad_direction[i] * (v[i] / size);
  along = BlockSum(along);
  for (int64_t i = threadIdx.x; i < count; i += kBlock) {
    grad_v[i] = static_cast<float>(*length / size * (grad_direction[i] - along * (v[i] / size)));
  }
  if (threadIdx.x == 0) *grad_length = static_cast<float>(along);
}

}  // namespace

void AdditiveAttentionForward(cudaStream_t stream, const AdditiveAttention& attention,
                              float* output) {
  const int64_t blocks = attention.samples * attention.queries;
  ForwardKernel<<<blocks, kBlock, 0, stream>>>(attention, output);
}

void AdditiveAttentionBackward(cudaStream_t stream, const AdditiveAttention& attention,
                               const AdditiveAttentionGradients& gradients) {
  const int64_t query_blocks = attention.samples * attention.queries;
  QueryKernel<<<query_blocks, kBlock, 0, stream>>>(attention, gradients);
  const int64_t key_blocks = attention.samples * attention.keys;
  KeyKernel<<<key_blocks, kBlock, 0, stream>>>(attention, gradients);
}

void DirectionForward(cudaStream_t stream, int64_t count, const float* v, const float* length,
                      float* direction) {
  DirectionKernel<<<1, kBlock, 0, stream>>>(count, v, length, direction);
}

void DirectionBackward(cudaStream_t stream, int64_t count, const float* v, const float* length,
                       const float* grad_direction, float* grad_v, float* grad_length) {
  DirectionGradientKernel<<<1, kBlock, 0, stream>>>(count, v, length, grad_direction, grad_v,
                                                    grad_length);
}

}  // namespace penstock::cuda
