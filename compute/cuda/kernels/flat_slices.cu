// Optimizer steps: one launch over many slices of a flat array, Muon's matrix by matrix, norms, and what late
// gradients want of flat arrays.
#include "compute/cuda/kernels/float_math.cuh"
#include "compute/cuda/kernels/for_each.cuh"

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

// A block for each slice, whose threads share the sums of its blocks: a table of many rows has thousands.
__global__ void AddPartialSums(const Slice* slices, const double* partial_sums, double* norms) {
  const Slice& slice = slices[blockIdx.x];
  const int64_t end = slice.first_block + (slice.count + kSliceBlock - 1) / kSliceBlock;
  double sum = 0.0;
  for (int64_t b = slice.first_block + threadIdx.x; b < end; b += kBlock) sum += partial_sums[b];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) norms[blockIdx.x] = sum;
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

template <int kStates>
struct StateArrays {
  float* array[kStates];
};

template <typename Step>
__global__ void StepSlices(const Slice* slices, const SliceBlock* blocks, Step step, StepArrays a,
                           StateArrays<Step::kStates> state) {
  const SliceBlock block = blocks[blockIdx.x];
  const Slice slice = slices[block.slice];
  const Part part = PartOf(slice, block);
  const float scale = a.scales[block.slice];
  if (slice.decays == 0) step.LeaveOutDecay();
  const bool has_state = !Step::kMayLackState || state.array[0] != nullptr;
  for (int64_t i = part.first + threadIdx.x; i < part.end; i += kBlock) {
    float now[Step::kStates];
    for (int s = 0; has_state && s < Step::kStates; ++s) now[s] = state.array[s][i];
    const float g = a.gradients[i] * scale;
    const float w = step.template Next<FloatMath>(a.weights[i], g, has_state ? now : nullptr);
    for (int s = 0; has_state && s < Step::kStates; ++s) state.array[s][i] = now[s];
    StoreWeight(a, slice, i, w);
  }
}

template <typename Step>
void Launch(cudaStream_t stream, int64_t blocks, const Slice* slice_table,
            const SliceBlock* block_table, const Step& step, const StepArrays& arrays,
            float* const* state) {
  if (blocks == 0) return;
  StateArrays<Step::kStates> kept;
  for (int s = 0; s < Step::kStates; ++s) kept.array[s] = state[s];
  StepSlices<<<blocks, kBlock, 0, stream>>>(slice_table, block_table, step, arrays, kept);
}

template <typename... Configs>
constexpr ElementwiseLaunches<Configs...> AllOf(ElementwiseLaunches<Configs...>) {
  return {{Launch<typename Configs::Step>}...};
}

}  // namespace

constexpr OfElementwise<ElementwiseLaunches> kElementwise =
    AllOf(OfElementwise<ElementwiseLaunches>());

void LinearCombination(cudaStream_t stream, int64_t count, float a, const float* x, float b,
                       const float* y, float* to) {
  ForEach(stream, count, [=] __device__(int64_t i) { to[i] = a * x[i] + b * y[i]; });
}

void CompensateDelay(cudaStream_t stream, int64_t count, float strength, const float* now,
                     const float* read, float* gradients) {
  ForEach(stream, count, [=] __device__(int64_t i) {
    const float g = gradients[i];
    gradients[i] = g + g * g * strength * (now[i] - read[i]);
  });
}

void CompensateDelay(cudaStream_t stream, int64_t count, const MeanSquareCompensation& compensation,
                     const float* now, const float* read, float* mean_squares, float* gradients) {
  ForEach(stream, count, [=] __device__(int64_t i) {
    float v = mean_squares[i];
    gradients[i] = compensation.Compensated<FloatMath>(gradients[i], now[i] - read[i], v);
    mean_squares[i] = v;
  });
}

void NesterovDirection(cudaStream_t stream, int64_t count, float momentum, float gradient_scale,
                       const float* gradients, float* velocity, float* direction) {
  ForEach(stream, count, [=] __device__(int64_t i) {
    const float g = gradients[i] * gradient_scale;
    const float v = velocity[i] * momentum + g;
    velocity[i] = v;
    direction[i] = g + v * momentum;
  });
}

void Normalize(cudaStream_t stream, int64_t count, const double* squared_norm, double norm_min,
               float* x) {
  ForEach(stream, count, [=] __device__(int64_t i) {
    x[i] *= static_cast<float>(1.0 / (sqrt(*squared_norm) + norm_min));
  });
}

void MuonStep(cudaStream_t stream, const Slice& slice, float keep, float rate,
              const StepArrays& arrays, const float* x) {
  const Slice matrix = slice;
  const StepArrays a = arrays;
  ForEach(stream, slice.count, [=] __device__(int64_t i) {
    const int64_t at = matrix.offset + i;
    StoreWeight(a, matrix, at, a.weights[at] * keep - x[i] * rate);
  });
}

void SquaredNorms(cudaStream_t stream, int64_t slices, int64_t blocks, const Slice* slice_table,
                  const SliceBlock* block_table, const float* values, double* partial_sums,
                  double* norms) {
  if (blocks == 0) return;  // of a stage without parameters
  PartialSquares<<<blocks, kBlock, 0, stream>>>(slice_table, block_table, values, partial_sums);
  AddPartialSums<<<slices, kBlock, 0, stream>>>(slice_table, partial_sums, norms);
}

}  // namespace penstock::cuda
