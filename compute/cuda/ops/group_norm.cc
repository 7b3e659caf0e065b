// Group norm. Parameters: gain and bias [channels].
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/images.h"
#include "compute/cuda/norm_gradients.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace group_norm {
namespace {

class CudaGroupNorm : public OpKernels {
 public:
  CudaGroupNorm(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        samples_(spec.samples),
        width_(spec.width()),
        area_(spec.rows() / spec.samples),
        groups_(spec.attributes().integer("groups")),
        epsilon_(static_cast<float>(spec.attributes().number("epsilon"))) {
    BlockLayout stash, weight_stash;
    mean_ = stash.Add<float>(samples_ * groups_);
    inverse_deviation_ = stash.Add<float>(samples_ * groups_);
    gradients_ = NormGradients(width_, weight_stash);
    needs_ = {.stash_bytes = stash.size_bytes(),
              .weight_stash_bytes = weight_stash.size_bytes(),
              .inputs_for_input = kAllInputs};
  }

  int64_t scratch_bytes() const {
    return ChannelSumsWorkspaceFloats(samples_ * area_, width_) *
           static_cast<int64_t>(sizeof(float));
  }
  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    GroupNormForward(cuda_.stream(), Arguments(weights, tape), tape.input(), tape.result());
    return cuda_.Check("forward of a group norm");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    GroupNormBackward(cuda_.stream(), Arguments(weights, tape), tape.input(), tape.gradient(),
                      gradients_.gain(tape), gradients_.bias(tape), tape.grad_input());
    return cuda_.Check("backward of a group norm's input");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    gradients_.Add(cuda_, gradients, tape);
    return cuda_.Check("backward of a group norm's weights");
  }

 private:
  GroupNormArguments Arguments(const WeightView& weights, const Tape& tape) const {
    return {.samples = samples_,
            .area = area_,
            .width = width_,
            .groups = groups_,
            .epsilon = epsilon_,
            .gain = weights.parameter(0),
            .bias = weights.parameter(1),
            .mean = mean_.in(tape.stash),
            .inverse_deviation = inverse_deviation_.in(tape.stash),
            .workspace = static_cast<float*>(cuda_.layer_scratch().data())};
  }

  CudaContext& cuda_;
  const int64_t samples_, width_, area_, groups_;
  const float epsilon_;
  TapeNeeds needs_;
  Place<float> mean_, inverse_deviation_;  // stash [samples, groups]
  NormGradients gradients_;
};

}  // namespace
}  // namespace group_norm

MadeKernels MakeGroupNorm(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<group_norm::CudaGroupNorm>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
