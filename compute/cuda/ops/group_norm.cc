// Group norm. Parameters: gain and bias [channels].
#include "compute/cuda/kernels/images.h"
#include "compute/cuda/norm.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace group_norm {
namespace {

class CudaGroupNorm : public NormKernels {
 public:
  CudaGroupNorm(CudaContext& context, const KernelSpec& spec)
      : NormKernels(context, spec, spec.samples * GroupsOf(spec),
                    ChannelSumsWorkspaceFloats(spec.rows(), spec.width())),
        samples_(spec.samples),
        area_(spec.rows() / spec.samples),
        groups_(GroupsOf(spec)) {}

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    GroupNormForward(cuda_.stream(), Arguments(weights, tape), tape.input(), tape.result());
    return cuda_.Check("forward of a group norm");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    GroupNormBackward(cuda_.stream(), Arguments(weights, tape), tape.input(), tape.gradient(),
                      gain_sums(tape), bias_sums(tape), tape.grad_input());
    return cuda_.Check("backward of a group norm's input");
  }

 private:
  static int64_t GroupsOf(const KernelSpec& spec) { return spec.attributes().integer("groups"); }

  GroupNormArguments Arguments(const WeightView& weights, const Tape& tape) const {
    return {.samples = samples_,
            .area = area_,
            .width = width_,
            .groups = groups_,
            .epsilon = epsilon_,
            .gain = weights.parameter(kGain),
            .bias = weights.parameter(kBias),
            .mean = mean(tape),
            .inverse_deviation = inverse_deviation(tape),
            .workspace = workspace()};
  }

  const int64_t samples_, area_, groups_;
};

}  // namespace
}  // namespace group_norm

MadeKernels MakeGroupNorm(CudaContext& context, const KernelSpec& spec) {
  return MakeNorm<group_norm::CudaGroupNorm>(context, spec);
}

}  // namespace penstock::cuda
