// Attention of one time step over the keys and values that are kept. A block works on one head of a sample.
#include <cmath>

#include "base/status.h"
#include "compute/cuda/kernels/common.cuh"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace cached_attention {
namespace {

struct Sizes {
  int64_t samples, width, kept_width;  // of queries, and of keys and values
  int64_t heads, size, group;  // size: of a head; group: heads of queries that share one of keys
  int64_t context, window;
};

// keys and values [samples, context, kept_width]: the rows of this step are written. scores [samples, heads, context]: workspace.
__global__ void ForwardKernel(Sizes s, const float* query, const float* key, const float* value,
                              const int32_t* steps, float* keys, float* values, float* scores,
                              float* output) {
  const int64_t sample = blockIdx.x / s.heads;
  const int64_t head = blockIdx.x % s.heads;
  const int64_t column = head / s.group * s.size;
  const int64_t step = steps[sample];
  const int64_t row = (sample * s.context + step) * s.kept_width + column;
  // Heads of a group write the same.
  for (int64_t c = threadIdx.x; c < s.size; c += kBlock) {
    keys[row + c] = key[sample * s.kept_width + column + c];
    values[row + c] = value[sample * s.kept_width + column + c];
  }
  __syncthreads();
  const int64_t first = s.window > 0 && step + 1 > s.window ? step + 1 - s.window : 0;
  const float* q = query + sample * s.width + head * s.size;
  const float scale = rsqrtf(static_cast<float>(s.size));
  float* of_head = scores + blockIdx.x * s.context;
  float maximum = -INFINITY;
  for (int64_t t = first + threadIdx.x; t <= step; t += kBlock) {
    const float* k = keys + (sample * s.context + t) * s.kept_width + column;
    float sum = 0.0f;
    for (int64_t c = 0; c < s.size; ++c) sum += q[c] * k[c];
    of_head[t] = sum * scale;
    maximum = fmaxf(maximum, of_head[t]);
  }
  maximum = BlockMax(maximum);
  float sum = 0.0f;
  for (int64_t t = first + threadIdx.x; t <= step; t += kBlock) {
    of_head[t] = expf(of_head[t] - maximum);
    sum += of_head[t];
  }
  sum = BlockSum(sum);
  __syncthreads();
  for (int64_t c = threadIdx.x; c < s.size; c += kBlock) {
    float mean = 0.0f;
    for (int64_t t = first; t <= step; ++t) {
      mean += of_head[t] * values[(sample * s.context + t) * s.kept_width + column + c];
    }
    output[sample * s.width + head * s.size + c] = mean / sum;
  }
}

class CudaCachedAttention : public OpKernels {
 public:
  CudaCachedAttention(CudaContext& context, const KernelSpec& spec) : cuda_(context) {
    const int64_t heads = spec.attributes().integer("heads");
    s_ = {.samples = spec.samples,
          .width = spec.width(),
          .kept_width = spec.width(1),
          .heads = heads,
          .size = spec.width() / heads,
          .group = heads / spec.attributes().integer("key_value_heads"),
          .context = spec.attributes().integer("context"),
          .window = spec.attributes().integer("window")};
  }

  absl::Status ReserveScratch() {
    return cuda_.layer_scratch().Reserve(s_.samples * s_.heads * s_.context *
                                         static_cast<int64_t>(sizeof(float)));
  }

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    if (tape.next_states[0] == nullptr) {
      return absl::FailedPreconditionError(
          "keeps keys and values, but no memory is there for them");
    }
    ForwardKernel<<<s_.samples * s_.heads, kBlock, 0, cuda_.stream()>>>(
        s_, tape.input(), tape.input(1), tape.input(2), tape.input<int32_t>(3), tape.next_states[0],
        tape.next_states[1], static_cast<float*>(cuda_.layer_scratch().data()), tape.result());
    return cuda_.Check("forward of a cached attention");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::UnimplementedError("is for evaluation, and has no gradient");
  }

 private:
  CudaContext& cuda_;
  Sizes s_ = {};
};

}  // namespace
}  // namespace cached_attention

MadeKernels MakeCachedAttention(CudaContext& context, const KernelSpec& spec) {
  if (spec.inputs[0].dims[0] != 1) {
    return absl::UnimplementedError(
        "attention over kept keys and values is for one time step at a time here");
  }
  auto op = std::make_unique<cached_attention::CudaCachedAttention>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(op->ReserveScratch());
  return op;
}

}  // namespace penstock::cuda
