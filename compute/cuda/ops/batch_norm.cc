// Batch norm. Parameters: gain and bias [channels]. Buffers: running mean and variance [channels].
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/images.h"
#include "compute/cuda/norm_gradients.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace batch_norm {
namespace {

class CudaBatchNorm : public OpKernels {
 public:
  CudaBatchNorm(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        rows_(spec.rows()),
        width_(spec.width()),
        epsilon_(static_cast<float>(spec.attributes().number("epsilon"))),
        momentum_(spec.attributes().number("momentum")) {
    BlockLayout stash, weight_stash;
    mean_ = stash.Add<float>(width_);
    inverse_deviation_ = stash.Add<float>(width_);
    gradients_ = NormGradients(width_, weight_stash);
    needs_ = {.stash_bytes = stash.size_bytes(),
              .weight_stash_bytes = weight_stash.size_bytes(),
              .inputs_for_input = kAllInputs};
  }

  int64_t scratch_bytes() const {
    return ChannelSumsWorkspaceFloats(rows_, width_) * static_cast<int64_t>(sizeof(float));
  }
  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override {
    if (!context.training) {
      BatchNormEvaluate(cuda_.stream(), Arguments(weights, tape), tape.input(), tape.result());
      return cuda_.Check("evaluation of a batch norm");
    }
    if (rows_ < 2) {
      return absl::InvalidArgumentError(
          "a microbatch has a single value of each channel, whose variance is nothing to learn "
          "from; use larger microbatches or images");
    }
    BatchNormTrain(cuda_.stream(), Arguments(weights, tape), momentum_, context.updates_buffers,
                   tape.input(), tape.result());
    return cuda_.Check("forward of a batch norm");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    BatchNormBackward(cuda_.stream(), Arguments(weights, tape), tape.input(), tape.gradient(),
                      gradients_.gain(tape), gradients_.bias(tape), tape.grad_input());
    return cuda_.Check("backward of a batch norm's input");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    gradients_.Add(cuda_, gradients, tape);
    return cuda_.Check("backward of a batch norm's weights");
  }

 private:
  BatchNormArguments Arguments(const WeightView& weights, const Tape& tape) const {
    return {.rows = rows_,
            .width = width_,
            .epsilon = epsilon_,
            .gain = weights.parameter(0),
            .bias = weights.parameter(1),
            .mean = mean_.in(tape.stash),
            .inverse_deviation = inverse_deviation_.in(tape.stash),
            .running_mean = tape.buffers[0],
            .running_variance = tape.buffers[1],
            .workspace = static_cast<float*>(cuda_.layer_scratch().data())};
  }

  CudaContext& cuda_;
  const int64_t rows_, width_;
  const float epsilon_;
  const double momentum_;
  TapeNeeds needs_;
  Place<float> mean_, inverse_deviation_;  // stash [channels]
  NormGradients gradients_;
};

}  // namespace
}  // namespace batch_norm

MadeKernels MakeBatchNorm(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<batch_norm::CudaBatchNorm>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
