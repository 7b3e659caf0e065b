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

__device__ Bf16 Rounded(const StepArrays& a, const Slice& slice, int64_t i, float weight) {
  if (!a.rounds_at_random) return FromFloat<Bf16>(weight);
  StochasticRounding rounding = a.rounding;
  rounding.parameter = slice.identity;
  return RoundAtRandom(weight, i - slice.offset, rounding);
}

__device__ void StoreWeight(const StepArrays& a, const Slice& slice, int64_t i, float weight) {
  a.next_weights[i] = weight;
  if (a.next_bf16 != nullptr) a.next_bf16[i] = Rounded(a, slice, i, weight);
}

template <int kStates>
struct StateArrays {
  float* array[kStates];
};

// A step of kPart elements side by side.
template <int kPart, typename Step>
__device__ void StepPart(const Slice& slice, const Step& step, const StepArrays& a,
                         const StateArrays<Step::kStates>& state, float scale, int64_t i) {
  using Floats = Pack<float, kPart>;
  const bool has_state = !Step::kMayLackState || state.array[0] != nullptr;
  const Floats gradients = LoadPack<kPart>(a.gradients + i);
  const Floats weights = LoadPack<kPart>(a.weights + i);
  Floats states[Step::kStates] = {};
  for (int s = 0; has_state && s < Step::kStates; ++s) {
    states[s] = LoadPack<kPart>(state.array[s] + i);
  }
  Floats next;
  for (int k = 0; k < kPart; ++k) {
    float now[Step::kStates];
    for (int s = 0; s < Step::kStates; ++s) now[s] = states[s].at[k];
    const float g = gradients.at[k] * scale;
    next.at[k] = step.template Next<FloatMath>(weights.at[k], g, has_state ? now : nullptr);
    for (int s = 0; s < Step::kStates; ++s) states[s].at[k] = now[s];
  }
  for (int s = 0; has_state && s < Step::kStates; ++s) StorePack(state.array[s] + i, states[s]);
  StorePack(a.next_weights + i, next);
  if (a.next_bf16 == nullptr) return;
  Pack<Bf16, kPart> rounded;
  for (int k = 0; k < kPart; ++k) rounded.at[k] = Rounded(a, slice, i + k, next.at[k]);
  StorePack(a.next_bf16 + i, rounded);
}

// in_quads: all arrays begin where packs of four do.
template <typename Step>
__global__ void StepSlices(const Slice* slices, const SliceBlock* blocks, Step step, StepArrays a,
                           StateArrays<Step::kStates> state, bool in_quads) {
  const SliceBlock block = blocks[blockIdx.x];
  const Slice slice = slices[block.slice];
  const Part part = PartOf(slice, block);
  const float scale = a.scales[block.slice];
  if (slice.decays == 0) step.LeaveOutDecay();
  int64_t rest = part.first;
  if (in_quads && part.first % 4 == 0) {
    rest += (part.end - part.first) / 4 * 4;
    for (int64_t i = part.first + 4 * threadIdx.x; i < rest; i += 4 * kBlock) {
      StepPart<4>(slice, step, a, state, scale, i);
    }
  }
  for (int64_t i = rest + threadIdx.x; i < part.end; i += kBlock) {
    StepPart<1>(slice, step, a, state, scale, i);
  }
}

template <typename Step>
void Launch(cudaStream_t stream, int64_t blocks, const Slice* slice_table,
            const SliceBlock* block_table, const Step& step, const StepArrays& arrays,
            float* const* state) {
  if (blocks == 0) return;
  StateArrays<Step::kStates> kept;
  bool in_quads =
      IsInQuads(4, {arrays.gradients, arrays.weights, arrays.next_weights, arrays.next_bf16});
  for (int s = 0; s < Step::kStates; ++s) {
    kept.array[s] = state[s];
    in_quads = in_quads && IsInQuads(4, {state[s]});
  }
  StepSlices<<<blocks, kBlock, 0, stream>>>(slice_table, block_table, step, arrays, kept, in_quads);
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
