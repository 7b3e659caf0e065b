// Rotary positions: Su et al., arXiv 2104.09864. All heads of a row turn by the same angles, and the gradient turns back.
#include <vector>

#include "base/status.h"
#include "compute/cuda/error.h"
#include "compute/cuda/kernels/common.cuh"
#include "compute/cuda/ops.h"
#include "compute/ops/rope.h"

namespace penstock::cuda {
namespace rope {
namespace {

struct Sizes {
  int64_t rows, time, heads, pairs;  // pairs: of a head
};

// A thread turns one pair of each head of a row. positions [rows]; null: rows count from 0 in each sample. direction: 1, or
// -1 to turn back.
__global__ void TurnKernel(Sizes s, const float* frequencies, const int32_t* positions,
                           float direction, const float* from, float* to) {
  const int64_t task = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (task >= s.rows * s.pairs) return;
  const int64_t row = task / s.pairs;
  const int64_t pair = task % s.pairs;
  const int64_t position = positions == nullptr ? row % s.time : positions[row];
  float sine = 0.0f, cosine = 0.0f;
  sincosf(__fmul_rn(static_cast<float>(position), frequencies[pair]), &sine, &cosine);
  sine *= direction;
  for (int64_t head = 0; head < s.heads; ++head) {
    const int64_t at = (row * s.heads + head) * 2 * s.pairs + pair;
    const float x = from[at];
    const float y = from[at + s.pairs];
    to[at] = x * cosine - y * sine;
    to[at + s.pairs] = y * cosine + x * sine;
  }
}

class CudaRope : public OpKernels {
 public:
  // frequencies [pairs]
  CudaRope(CudaContext& context, const KernelSpec& spec, Buffer frequencies)
      : cuda_(context),
        has_positions_(spec.inputs.size() > 1),
        frequencies_(std::move(frequencies)) {
    const int64_t head_size = spec.attributes().integer("head_size");
    s_ = {.rows = spec.rows(),
          .time = spec.inputs[0].dims[0],
          .heads = spec.width() / head_size,
          .pairs = head_size / 2};
  }

  TapeNeeds tape_needs() const override {
    return {.inputs_for_input = has_positions_ ? InputSet{1} << kPositions : kNoInputs};
  }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    Turn(tape, 1.0f, tape.input(), tape.result());
    return cuda_.Check("forward of rotary positions");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    Turn(tape, -1.0f, tape.gradient(), tape.grad_input());
    return cuda_.Check("backward of rotary positions");
  }

 private:
  static constexpr int kPositions = 1;  // an input

  void Turn(const Tape& tape, float direction, const float* from, float* to) const {
    TurnKernel<<<CeilDiv(s_.rows * s_.pairs, kBlock), kBlock, 0, cuda_.stream()>>>(
        s_, static_cast<const float*>(frequencies_.data()),
        has_positions_ ? tape.input<int32_t>(kPositions) : nullptr, direction, from, to);
  }

  CudaContext& cuda_;
  const bool has_positions_;
  const Buffer frequencies_;
  Sizes s_ = {};
};

}  // namespace
}  // namespace rope

MadeKernels MakeRope(CudaContext& context, const KernelSpec& spec) {
  const std::vector<float> frequencies = penstock::rope::Frequencies(spec.attributes());
  const size_t size_bytes = frequencies.size() * sizeof(float);
  Buffer buffer = context.pool().Acquire(static_cast<int64_t>(size_bytes));
  if (!buffer) return absl::ResourceExhaustedError("no memory for frequencies of rotary positions");
  // From memory that is not page-locked: the driver copies it before the call returns.
  PENSTOCK_RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(buffer.data(), frequencies.data(), size_bytes,
                                                    cudaMemcpyHostToDevice, context.stream()),
                                    "copying frequencies of rotary positions"));
  return std::make_unique<rope::CudaRope>(context, spec, std::move(buffer));
}

}  // namespace penstock::cuda
