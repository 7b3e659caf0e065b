// One launch over many slices of a flat array: norms and optimizer steps.
#include "compute/cuda/kernels/common.cuh"

namespace penstock::cuda {
namespace {

// The elements of the flat array that a block has.
struct Part {
  int64_t first, end;
};

__device__ Part PartOf(const Slice& slice, const SliceBlock& block) {
  const int64_t first = int64_t{block.part} * kSliceBlock;
  return {slice.offset + first, slice.offset + min(first + kSliceBlock, slice.count)};
}

__global__ void PartialSquares(const Slice* slices, const SliceBlock* blocks, const float* values,
                               double* partial_sums) {
  const SliceBlock block = blocks[blockIdx.x];
  const Part part = PartOf(slices[block.slice], block);
  double sum = 0.0;
  for (int64_t i = part.first + threadIdx.x; i < part.end; i += kBlock) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial_sums[blockIdx.x] = sum;
}

// Each slice adds its blocks in order.
__global__ void AddPartialSums(int64_t count, const Slice* slices, const double* partial_sums,
                               double* norms) {
  const int64_t slice = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (slice >= count) return;
  const int64_t first = slices[slice].first_block;
  const int64_t blocks = (slices[slice].count + kSliceBlock - 1) / kSliceBlock;
  double sum = 0.0;
  for (int64_t b = first; b < first + blocks; ++b) sum += partial_sums[b];
  norms[slice] = sum;
}

__device__ void StoreWeight(const StepArrays& a, const Slice& slice, int64_t i, float weight) {
  a.next_weights[i] = weight;
  if (a.next_bf16 == nullptr) return;
  if (a.rounds_at_random) {
    StochasticRounding rounding = a.rounding;
    rounding.parameter = slice.identity;
    a.next_bf16[i] = RoundAtRandom(weight, i - slice.offset, rounding);
  } else {
    a.next_bf16[i] = FromFloat<Bf16>(weight);
  }
}

__global__ void AdamWKernel(const Slice* slices, const SliceBlock* blocks, AdamWConstants k,
                            StepArrays a, float* mean, float* square) {
  const SliceBlock block = blocks[blockIdx.x];
  const Slice slice = slices[block.slice];
  const Part part = PartOf(slice, block);
  const float scale = a.scales[block.slice];
  const float keep = slice.decays != 0 ? k.keep : 1.0f;
  for (int64_t i = part.first + threadIdx.x; i < part.end; i += kBlock) {
    const float g = a.gradients[i] * scale;
    const float m = mean[i] * k.beta1 + g * k.rest1;
    const float v = square[i] * k.beta2 + g * g * k.rest2;
    mean[i] = m;
    square[i] = v;
    StoreWeight(a, slice, i,
                a.weights[i] * keep - m * k.rate / (sqrtf(v) * k.root_scale + k.epsilon));
  }
}

__global__ void SgdKernel(const Slice* slices, const SliceBlock* blocks, SgdConstants k,
                          StepArrays a, float* velocity) {
  const SliceBlock block = blocks[blockIdx.x];
  const Slice slice = slices[block.slice];
  const Part part = PartOf(slice, block);
  const float scale = a.scales[block.slice];
  const float decay = slice.decays != 0 ? k.weight_decay : 0.0f;
  for (int64_t i = part.first + threadIdx.x; i < part.end; i += kBlock) {
    const float w = a.weights[i];
    float g = a.gradients[i] * scale + w * decay;
    if (velocity != nullptr) {
      g += velocity[i] * k.momentum;
      velocity[i] = g;
    }
    StoreWeight(a, slice, i, w - g * k.rate);
  }
}

}  // namespace

void SquaredNorms(cudaStream_t stream, int64_t slices, int64_t blocks, const Slice* slice_table,
                  const SliceBlock* block_table, const float* values, double* partial_sums,
                  double* norms) {
  PartialSquares<<<blocks, kBlock, 0, stream>>>(slice_table, block_table, values, partial_sums);
  AddPartialSums<<<CeilDiv(slices, kBlock), kBlock, 0, stream>>>(slices, slice_table, partial_sums,
                                                                 norms);
}

void AdamWStep(cudaStream_t stream, int64_t blocks, const Slice* slice_table,
               const SliceBlock* block_table, const AdamWConstants& constants,
               const StepArrays& arrays, float* mean, float* square) {
  AdamWKernel<<<blocks, kBlock, 0, stream>>>(slice_table, block_table, constants, arrays, mean,
                                             square);
}

void SgdStep(cudaStream_t stream, int64_t blocks, const Slice* slice_table,
             const SliceBlock* block_table, const SgdConstants& constants, const StepArrays& arrays,
             float* velocity) {
  SgdKernel<<<blocks, kBlock, 0, stream>>>(slice_table, block_table, constants, arrays, velocity);
}

}  // namespace penstock::cuda
