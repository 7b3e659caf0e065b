// Batch norm. Parameters: gain and bias [channels]. Buffers: running mean and variance [channels].
#include "compute/cuda/kernels/images.h"
#include "compute/cuda/norm.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace batch_norm {
namespace {

class CudaBatchNorm : public NormKernels {
 public:
  CudaBatchNorm(CudaContext& context, const KernelSpec& spec)
      : NormKernels(context, spec, spec.width(),
                    ChannelSumsWorkspaceFloats(spec.rows(), spec.width())),
        rows_(spec.rows()),
        momentum_(spec.attributes().number("momentum")) {}

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
                      gain_sums(tape), bias_sums(tape), tape.grad_input());
    return cuda_.Check("backward of a batch norm's input");
  }

 private:
  BatchNormArguments Arguments(const WeightView& weights, const Tape& tape) const {
    return {.rows = rows_,
            .width = width_,
            .epsilon = epsilon_,
            .gain = weights.parameter(kGain),
            .bias = weights.parameter(kBias),
            .mean = mean(tape),
            .inverse_deviation = inverse_deviation(tape),
            .running_mean = tape.buffers[0],
            .running_variance = tape.buffers[1],
            .workspace = workspace()};
  }

  const int64_t rows_;
  const double momentum_;
};

}  // namespace
}  // namespace batch_norm

MadeKernels MakeBatchNorm(CudaContext& context, const KernelSpec& spec) {
  return MakeNorm<batch_norm::CudaBatchNorm>(context, spec);
}

}  // namespace penstock::cuda
